// The records that arrive while the page is open.
import { size } from "../amounts.js";
import { feed, repeat } from "../feed.js";
import { localTime } from "../times.js";

const EVERY_MS = 500;
const MOST_ROWS = 500;

/** @param {HTMLElement} element */
export function start(element) {
  const body = /** @type {HTMLElement} */ (element.querySelector("[data-rows]"));
  const state = /** @type {HTMLElement} */ (element.querySelector("[data-state]"));
  const pause = /** @type {HTMLButtonElement} */ (element.querySelector("[data-pause]"));
  const source = element.dataset.source ?? "";
  let at = "";
  let paused = false;
  let arrived = 0;

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    state.textContent = paused ? `Paused after ${arrived} records.` : "Waiting for records…";
  });

  repeat(async () => {
    if (paused) return;
    try {
      const found = await feed(`${source}${source.includes("?") ? "&" : "?"}at=${encodeURIComponent(at)}`);
      if (paused) return;
      at = found.at;
      arrived += found.rows.length + found.skipped;
      body.prepend(...found.rows.map((/** @type {any} */ row) => tableRow(row, element)).reverse());
      while (body.childElementCount > MOST_ROWS) body.lastElementChild?.remove();
      state.textContent = found.problems[0] ?? (arrived ? `${arrived} records have arrived.` : "Waiting for records…");
    } catch (error) {
      state.textContent = error instanceof Error ? error.message : String(error);
    }
  }, EVERY_MS);
}

/** @param {any} row @param {HTMLElement} element */
function tableRow(row, element) {
  const line = document.createElement("tr");
  line.className = "new";
  const link = document.createElement("a");
  link.href = `${element.dataset.path}/${row.partition}/${row.offset}${element.dataset.query ?? ""}`;
  link.textContent = row.offset;
  const offset = cell("th", "number", link);
  offset.setAttribute("scope", "row");
  line.append(
    cell("td", "nowrap", row.time_ms < 0 ? "–" : localTime(new Date(row.time_ms))),
    cell("td", "number", String(row.partition)),
    offset,
    cell("td", "mono key", inner(row.key ?? "null")),
    cell("td", "mono value", inner(row.marker ? `${row.marker} of a transaction` : (row.value ?? "null"))),
    cell("td", "number", String(row.headers || "")),
    cell("td", "number", size((row.key_bytes ?? 0) + (row.value_bytes ?? 0))),
  );
  return line;
}

/** @param {string} text */
function inner(text) {
  const made = document.createElement("div");
  made.textContent = text;
  return made;
}

/** @param {string} kind @param {string} name @param {Node | string} content */
function cell(kind, name, content) {
  const made = document.createElement(kind);
  made.className = name;
  made.append(content);
  return made;
}
