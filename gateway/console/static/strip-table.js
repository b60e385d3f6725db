// The events of a strip as rows of a table: the strip's alternative in text.
import { made } from "./elements.js";
import { labelCells } from "./live-rows.js";
import { localTime } from "./times.js";

const MOST_ROWS = 300;
const MARKS = { accepted: "▮ accepted", duplicate: "◆ duplicate", refused: "✕ refused" };

/** Fills the body of a table, the newest event first. @param {HTMLElement} body @param {any[]} events */
export function fillEvents(body, events) {
  const newest = events.at(-1);
  if (!newest) return;
  // Rows stay while nothing happens: somebody may read or mark them.
  const shown = [events.length, newest.time, newest.kind, newest.last].join(" ");
  if (shown === body.dataset.shown) return;
  body.dataset.shown = shown;
  const rows = events.slice(-MOST_ROWS).reverse().map((event) => {
    const known = (/** @type {number | null} */ value) => (value === null || value < 0 ? "–" : String(value));
    const sequences = event.first < 0 ? known(event.last) : `${event.first}–${event.last}`;
    const kind = MARKS[/** @type {keyof typeof MARKS} */ (event.kind)] + (event.outcome ? ` with ${event.outcome}` : "");
    const numbers = [sequences, known(event.records), known(event.offset), known(event.epoch)].map((text) => made("td", "number", text));
    const row = made("tr", "", made("td", "nowrap", localTime(new Date(event.time))), made("td", "event-kind", kind), ...numbers);
    labelCells(row, body.closest("table"));
    return row;
  });
  body.replaceChildren(...rows);
}
