// Keeps the backlogs of a topic's partitions current.
import { feed, repeat } from "../feed.js";
import { showProblem } from "../feed-problem.js";
import { size } from "../amounts.js";
import { showRow } from "../live-rows.js";

const EVERY_MS = 3000;
const KINDS = { open: "good", holding: "warn", refusing: "bad", elsewhere: "", unknown: "bad" };

/** @param {HTMLElement} element */
export function start(element) {
  repeat(async () => {
    try {
      const found = await feed(element.dataset.source ?? "");
      for (const [key, row] of Object.entries(found.rows)) {
        showRow(key, { bytes: row.bytes === null ? null : size(row.bytes), age_ms: row.age_ms, refused: row.refused, verdict: row.verdict, node: row.node });
        const badge = element.querySelector(`[data-row="${CSS.escape(key)}"] .badge`);
        const kind = KINDS[/** @type {keyof typeof KINDS} */ (row.verdict)] ?? "";
        if (badge) badge.className = `badge ${kind}`;
      }
      showProblem(element, found.error);
    } catch (error) {
      showProblem(element, error);
    }
  }, EVERY_MS);
}
