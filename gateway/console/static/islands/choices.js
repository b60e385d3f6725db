// A form whose fields depend on what the person chooses.
import { startChoices } from "../choices.js";

/** @param {HTMLElement} element */
export function start(element) {
  startChoices(element);
}
