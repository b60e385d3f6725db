// Says in words what happened in a cell of a strip.
import { localTime } from "./times.js";

/** @param {any} event */
function sequences(event) {
  if (event.last < 0) return "";
  if (event.first < 0) return `up to sequence ${event.last}`;
  return event.first === event.last ? `sequence ${event.last}` : `sequences ${event.first}–${event.last}`;
}

/** @param {number} count */
function records(count) {
  return count === 1 ? "1 record" : `${new Intl.NumberFormat("en").format(count)} records`;
}

/** Returns an event as a sentence without its time. @param {any} event */
export function eventWords(event) {
  const parts = [sequences(event)];
  if (event.kind === "accepted") {
    if (event.records !== null) parts.unshift(records(event.records));
    if (event.offset >= 0) parts.push(`up to offset ${event.offset}`);
    return `Accepted: ${parts.filter(Boolean).join(", ")}`;
  }
  if (event.kind === "duplicate") {
    if (event.offset >= 0) parts.push(`the original is at offset ${event.offset}`);
    return `Duplicate: ${parts.filter(Boolean).join(", ")}`;
  }
  return `Refused with ${event.outcome}: ${parts.filter(Boolean).join(", ") || "no sequence"}`;
}

/** Returns the times of a cell. @param {import("./strip-drawing.js").Cell} cell */
export function cellTime(cell) {
  const clock = (/** @type {number} */ at) => localTime(new Date(at)).slice(11, 19);
  return `${clock(cell.from)}–${clock(cell.to)}`;
}

const MOST_SENTENCES = 6;

/** Returns what happened in a cell, one sentence for each event. @param {import("./strip-drawing.js").Cell} cell */
export function cellWords(cell) {
  if (!cell.events.length) return [cell.isWatched ? "Nothing happened." : "The console did not watch."];
  const words = cell.events.slice(0, MOST_SENTENCES).map(eventWords);
  if (cell.events.length > MOST_SENTENCES) words.push(`and ${cell.events.length - MOST_SENTENCES} more`);
  return words;
}
