// The records that arrive while the page is open.
import { feed, repeat } from "../feed.js";
import { opensRows, recordRow } from "../record-rows.js";

const EVERY_MS = 500;
const MOST_ROWS = 500;

/** @param {HTMLElement} element */
export function start(element) {
  const body = /** @type {HTMLElement} */ (element.querySelector("[data-rows]"));
  const state = /** @type {HTMLElement} */ (element.querySelector("[data-state]"));
  const pause = /** @type {HTMLButtonElement} */ (element.querySelector("[data-pause]"));
  let at = "";
  let paused = false;
  let arrived = 0;

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    state.textContent = paused ? `Paused after ${arrived} ${arrived === 1 ? "record" : "records"}.` : "Waiting for records…";
  });

  opensRows(body);
  repeat(async () => {
    if (paused) return;
    try {
      const found = await feed(element.dataset.source ?? "", { at });
      if (paused) return;
      at = found.at;
      arrived += found.rows.length + found.skipped;
      body.prepend(...found.rows.map((/** @type {any} */ row) => recordRow(row, element, "new")).reverse());
      while (body.childElementCount > MOST_ROWS) body.lastElementChild?.remove();
      state.textContent = found.problems[0] ?? (arrived ? `${arrived} ${arrived === 1 ? "record has" : "records have"} arrived.` : "Waiting for records…");
    } catch (error) {
      state.textContent = error instanceof Error ? error.message : String(error);
    }
  }, EVERY_MS);
}
