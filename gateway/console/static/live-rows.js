// Shows what has changed in the cells of a row.
import { span } from "./amounts.js";

/** @param {string} key @param {any} values */
export function showRow(key, values) {
  const row = [...document.querySelectorAll("[data-row]")].find((element) => element.getAttribute("data-row") === key);
  if (!row) return;
  const texts = { ...values, age: values.age_ms === null ? null : span(values.age_ms) };
  for (const cell of row.querySelectorAll("[data-live]")) {
    const value = texts[cell.getAttribute("data-live") ?? ""];
    if (value !== undefined) cell.textContent = value === null ? "–" : String(value);
  }
}
