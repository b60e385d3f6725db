// Rows of tables that change while the page is open.
import { span } from "./amounts.js";

/** Shows what has changed in the cells of a row. @param {string} key @param {any} values */
export function showRow(key, values) {
  const row = [...document.querySelectorAll("[data-row]")].find((element) => element.getAttribute("data-row") === key);
  if (!row) return;
  const texts = { ...values, age: values.age_ms === null ? null : span(values.age_ms) };
  for (const cell of row.querySelectorAll("[data-live]")) {
    const value = texts[cell.getAttribute("data-live") ?? ""];
    if (value !== undefined) cell.textContent = value === null ? "–" : String(value);
  }
}

/** Gives the cells of a new row the names of their columns, as the server does. @param {HTMLElement} row @param {Element | null} table */
export function labelCells(row, table) {
  const names = [...(table?.querySelectorAll("thead th") ?? [])].map((heading) => heading.getAttribute("data-label") ?? "");
  [...row.children].forEach((cell, index) => cell.setAttribute("data-label", names[index] ?? ""));
}
