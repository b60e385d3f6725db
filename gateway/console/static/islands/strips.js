// The strips of producers: they follow a feed, and tell the cell under the pointer or at the keys' cursor.
import { made } from "../elements.js";
import { feed, repeat } from "../feed.js";
import { showProblem } from "../feed-problem.js";
import { drawStrip } from "../strip-drawing.js";
import { cellTime, cellWords } from "../strip-words.js";
import { fillEvents } from "../strip-table.js";
import { showRow } from "../live-rows.js";

const EVERY_MS = 2000;
const FIELDS = ["time", "kind", "first", "last", "records", "offset", "epoch", "outcome"];

/** @param {HTMLElement} element */
export function start(element) {
  const spanMs = Number(element.dataset.minutes) * 60_000;
  const count = Number(element.dataset.cells);
  const strips = [.../** @type {NodeListOf<HTMLElement>} */ (element.querySelectorAll(".strip"))];
  const table = document.getElementById(element.dataset.events ?? "");
  const tip = made("div", "strip-tip");
  tip.hidden = true;
  (document.querySelector("main") ?? document.body).append(tip);
  /** @type {Map<string, any[]>} */ const events = new Map();
  /** @type {Record<string, number | null>} */ let since = {};
  /** @type {Map<HTMLElement, number>} */ const cursors = new Map();
  let now = 0, after = 0, numbers = "";
  /** @type {[number, number][]} */ let gaps = [];

  const cellsOf = (/** @type {HTMLElement} */ strip) => {
    const cellMs = spanMs / count;
    const began = since[strip.dataset.key ?? ""] ?? Infinity;
    const end = (Math.floor(now / cellMs) + 1) * cellMs;
    const cells = Array.from({ length: count }, (_, index) => {
      const from = end - (count - index) * cellMs;
      return { from, to: from + cellMs, events: /** @type {any[]} */ ([]), isWatched: from + cellMs > began && !gaps.some(([left, back]) => from >= left && from + cellMs <= back) };
    });
    for (const event of events.get(strip.dataset.key ?? "") ?? []) cells[Math.floor((event.time - cells[0].from) / cellMs)]?.events.push(event);
    return cells;
  };
  const draw = (/** @type {HTMLElement} */ strip) => {
    const cells = cellsOf(strip), cursor = cursors.get(strip) ?? null;
    const told = cells[cursor ?? cells.findLastIndex((cell) => cell.events.length)];
    drawStrip(strip, cells, cursor);
    strip.setAttribute("aria-valuemax", String(count - 1));
    strip.setAttribute("aria-valuenow", String(cursor ?? count - 1));
    strip.setAttribute("aria-valuetext", told ? `${cellTime(told)}: ${cellWords(told).join(" ")}` : "No event in this time.");
    if (cursor !== null) showTip(tip, strip, cells[cursor], (cursor + 0.5) / count);
  };
  const move = (/** @type {HTMLElement} */ strip, /** @type {number | null} */ cell) => {
    if (cell === null) { cursors.delete(strip); tip.hidden = true; } else cursors.set(strip, Math.min(Math.max(cell, 0), count - 1));
    draw(strip);
  };
  for (const strip of strips) {
    strip.addEventListener("pointermove", (event) => {
      const box = strip.getBoundingClientRect();
      move(strip, Math.floor(((event.clientX - box.left) / box.width) * count));
    });
    strip.addEventListener("pointerleave", () => move(strip, null));
    strip.addEventListener("focus", () => move(strip, lastWithEvents(cellsOf(strip), count)));
    strip.addEventListener("blur", () => move(strip, null));
    strip.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { tip.hidden = true; return; }
      const to = target(event.key, cursors.get(strip) ?? count - 1, cellsOf(strip));
      if (to === null) return;
      event.preventDefault();
      move(strip, to);
    });
  }

  const update = async () => {
    try {
      const found = await feed(element.dataset.source ?? "", { after: String(after), numbers });
      now = found.now;
      since = found.since;
      after = found.sampled;
      numbers = found.numbers;
      gaps = found.gaps;
      for (const [key, rows] of Object.entries(found.events)) {
        const known = events.get(key) ?? [];
        known.push(...rows.map((/** @type {any[]} */ row) => Object.fromEntries(FIELDS.map((name, index) => [name, row[index]]))));
        known.sort((one, other) => one.time - other.time);
        events.set(key, known.filter((event) => event.time > now - 2 * spanMs));
      }
      for (const [key, row] of Object.entries(found.rows)) showRow(key, row);
      if (table && strips.length) fillEvents(table, events.get(strips[0].dataset.key ?? "") ?? []);
      showProblem(element, found.error);
    } catch (error) {
      showProblem(element, error);
    }
    strips.forEach(draw);
  };
  new ResizeObserver(() => strips.forEach(draw)).observe(element);
  repeat(update, EVERY_MS);
}

/** @param {any[]} cells @param {number} count */
function lastWithEvents(cells, count) {
  const last = cells.findLastIndex((cell) => cell.events.length);
  return last < 0 ? count - 1 : last;
}

/** Returns the cell to which a key moves the cursor; null for other keys. @param {string} key @param {number} at @param {any[]} cells */
function target(key, at, cells) {
  if (key === "ArrowLeft" || key === "ArrowDown") return at - 1;
  if (key === "ArrowRight" || key === "ArrowUp") return at + 1;
  if (key === "Home") return 0;
  if (key === "End") return cells.length - 1;
  if (key === "PageUp") return Math.max(cells.findLastIndex((cell, index) => index < at && cell.events.length), 0);
  if (key === "PageDown") {
    const next = cells.findIndex((cell, index) => index > at && cell.events.length);
    return next < 0 ? cells.length - 1 : next;
  }
  return null;
}

/** @param {HTMLElement} tip @param {HTMLElement} strip @param {import("../strip-drawing.js").Cell} cell @param {number} share */
function showTip(tip, strip, cell, share) {
  tip.replaceChildren(made("p", "when", cellTime(cell)), ...cellWords(cell).map((words) => made("p", "", words)));
  tip.hidden = false;
  const box = strip.getBoundingClientRect();
  const left = Math.min(box.left + share * box.width, document.documentElement.clientWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(left, 8) + window.scrollX}px`;
  tip.style.top = `${box.bottom + 6 + window.scrollY}px`;
}
