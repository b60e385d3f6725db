// Rows of records, which open in their place: the row below shows what the page of the record shows.
import { size } from "./amounts.js";
import { startIslands } from "./console.js";
import { made } from "./elements.js";
import { labelCells } from "./live-rows.js";
import { localTime, showTimes } from "./times.js";

/** Lets the rows of a table open, by their button and by a click beside it. @param {HTMLElement} body */
export function opensRows(body) {
  body.addEventListener("click", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const row = target.closest("tr");
    const button = row?.querySelector("td.open button");
    const isOther = target.closest("a, button") !== null && target.closest("td.open") === null;
    if (!row || !button || isOther || !(getSelection()?.isCollapsed ?? true)) return;
    toggle(row, /** @type {HTMLElement} */ (button));
  });
}

/** @param {HTMLElement} row @param {HTMLElement} button */
function toggle(row, button) {
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  button.textContent = isOpen ? "▸" : "▾";
  if (isOpen) {
    row.nextElementSibling?.remove();
    return;
  }
  const cell = made("td", "", "Reading the record…");
  const hasWide = [...row.children].some((each) => /** @type {HTMLTableCellElement} */ (each).colSpan > 1);
  cell.setAttribute("colspan", String(row.children.length + (hasWide ? 1 : 0)));
  row.after(made("tr", "opened", cell));
  fill(cell, row.querySelector("a")?.href ?? "");
}

/** Shows the record of a page in a cell. @param {HTMLElement} cell @param {string} address */
async function fill(cell, address) {
  try {
    const response = await fetch(address, { cache: "no-store", headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const record = page.querySelector("[data-record]");
    if (record) {
      cell.replaceChildren(record);
      showTimes(cell);
      startIslands(cell);
    } else if (page.querySelector("main .notice.bad")) {
      cell.textContent = page.querySelector("main .notice.bad")?.textContent ?? "";
    } else {
      const link = document.createElement("a");
      link.href = address;
      link.textContent = "Reading takes long. Open the record in a page of its own.";
      cell.replaceChildren(link);
    }
  } catch {
    cell.textContent = "The console does not answer. It may have ended.";
  }
}

/** Returns the row of a record of a feed. @param {any} row @param {HTMLElement} element @param {string} className */
export function recordRow(row, element, className = "") {
  const button = made("button", "quiet", "▸");
  button.setAttribute("type", "button");
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-label", `Open record ${row.partition}:${row.offset} here`);
  const link = document.createElement("a");
  link.href = `${element.dataset.path}/${row.partition}/${row.offset}${element.dataset.query ?? ""}`;
  link.textContent = row.offset;
  const offset = made("th", "number", link);
  offset.setAttribute("scope", "row");
  const value = row.marker ? `${row.marker} of a transaction` : (row.value ?? "null");
  const line = made(
    "tr", className,
    made("td", "open", button),
    made("td", "nowrap", row.time_ms < 0 ? "–" : localTime(new Date(row.time_ms))),
    made("td", "number", String(row.partition)),
    offset,
    made("td", "mono key", made("div", "", row.key ?? "null")),
    made("td", "mono value", made("div", "", value)),
    made("td", "mono names", made("div", "", row.headers.join(", "))),
    made("td", "number", size((row.key_bytes ?? 0) + (row.value_bytes ?? 0))),
  );
  labelCells(line, element);
  return line;
}
