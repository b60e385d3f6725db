// The form of a reset: shows the fields of the chosen target, and sends a time in milliseconds, because only the browser knows its zone.
import { start as startChoices } from "./choices.js";

/** @param {HTMLElement} element */
export function start(element) {
  const at = /** @type {HTMLInputElement} */ (element.querySelector("[name=at]"));
  const exact = /** @type {HTMLInputElement} */ (element.querySelector("[name=at_ms]"));
  const note = () => {
    const time = new Date(at.value).getTime();
    exact.value = Number.isNaN(time) ? "" : String(time);
  };
  at.addEventListener("input", note);
  note();
  startChoices(element);
}
