// A page of records, whose rows open in their place.
import { opensRows } from "../record-rows.js";

/** @param {HTMLElement} element */
export function start(element) {
  const body = element.querySelector("tbody");
  if (body) opensRows(body);
}
