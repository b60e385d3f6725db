// Shows the fields that fit the chosen start, and lets people choose a time in their own zone.
import { localTime } from "../times.js";

/** @param {HTMLFormElement} form */
export function start(form) {
  const from = /** @type {HTMLSelectElement} */ (form.elements.namedItem("from"));
  const time = /** @type {HTMLInputElement} */ (form.elements.namedItem("time"));
  const show = () => {
    for (const label of form.querySelectorAll("[data-for]")) {
      label.toggleAttribute("hidden", label.getAttribute("data-for") !== from.value);
    }
  };
  const given = new Date(time.value);
  if (time.value.endsWith("Z") && !Number.isNaN(given.getTime())) time.value = localTime(given);
  time.placeholder = "10m, or 2026-01-31 13:45";
  form.addEventListener("submit", () => { time.value = inUtc(time.value); });
  from.addEventListener("change", show);
  show();
}

/** Returns a time of the browser's zone as ISO 8601 in UTC; other texts, such as `10m`, stay as they are. @param {string} text */
function inUtc(text) {
  if (!/^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?$/.test(text.trim())) return text;
  const local = new Date(text.trim().length === 10 ? `${text.trim()}T00:00` : text.trim().replace(" ", "T"));
  return Number.isNaN(local.getTime()) ? text : local.toISOString();
}
