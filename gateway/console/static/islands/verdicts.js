// Adds the newest verdicts to their table.
import { made } from "../elements.js";
import { feed, repeat } from "../feed.js";
import { showProblem } from "../feed-problem.js";
import { showTimes } from "../times.js";

const EVERY_MS = 2000;
const MOST_ROWS = 100;

/** @param {HTMLElement} element */
export function start(element) {
  const body = /** @type {HTMLElement} */ (element.querySelector("tbody"));
  const template = /** @type {HTMLTemplateElement} */ (element.querySelector("template"));
  const nothing = /** @type {HTMLElement} */ (element.querySelector(".nothing"));
  let numbers = element.dataset.numbers ?? "";
  repeat(async () => {
    try {
      const found = await feed(element.dataset.source ?? "", { numbers });
      numbers = found.numbers;
      for (const verdict of found.verdicts.reverse()) {
        body.prepend(rowOf(template, verdict));
        nothing.hidden = true;
      }
      while (body.children.length > MOST_ROWS) body.lastElementChild?.remove();
      showProblem(element, found.error);
    } catch (error) {
      showProblem(element, error);
    }
  }, EVERY_MS);
}

/** Returns a row with the values of a verdict. @param {HTMLTemplateElement} template @param {any} verdict */
function rowOf(template, verdict) {
  const row = /** @type {HTMLElement} */ (template.content.firstElementChild?.cloneNode(true));
  const cell = (/** @type {string} */ name) => row.querySelector(`[data-cell="${name}"]`);
  const put = (/** @type {string} */ name, /** @type {any} */ value) => {
    const found = cell(name);
    if (found) found.textContent = value === null ? "–" : String(value);
  };
  for (const name of ["epoch", "sequences", "offset", "client", "short", "meaning", "advice"]) put(name, verdict[name]);
  put("node", `Told by node ${verdict.node}.`);
  put("message", verdict.message ? `The client got: ${verdict.message}` : "");
  const badge = cell("outcome")?.firstElementChild;
  if (badge) {
    badge.textContent = verdict.outcome;
    badge.className = `badge ${verdict.outcome === "duplicate" ? "warn" : "bad"}`;
  }
  const time = made("time", "");
  time.setAttribute("datetime", new Date(verdict.time_ms).toISOString());
  cell("time")?.append(time);
  link(cell("partition"), "/producers", { topic: verdict.topic, partition: verdict.partition }, `${verdict.topic}-${verdict.partition}`);
  if (verdict.producer_id === null) put("producer", null);
  else link(cell("producer"), "/producers/one", { topic: verdict.topic, partition: verdict.partition, id: verdict.producer_id }, String(verdict.producer_id));
  showTimes(row);
  return row;
}

/** @param {Element | null} cell @param {string} path @param {Record<string, any>} query @param {string} text */
function link(cell, path, query, text) {
  if (!cell) return;
  const anchor = made("a", "", text);
  anchor.setAttribute("href", `${path}?${new URLSearchParams(query)}`);
  cell.replaceChildren(anchor);
}
