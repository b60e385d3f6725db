// Keeps parts of the page fresh: reads the page again, and takes the elements of the same ids from it.
// data-also names further elements beside the island's own, data-every the seconds between two readings. People who listen hear what
// has changed when an element has aria-live.
import { startIslands } from "../console.js";
import { FeedError, answered, repeat } from "../feed.js";
import { showProblem } from "../feed-problem.js";
import { showTimes } from "../times.js";

const EVERY_S = "5";

/** @param {HTMLElement} element */
export function start(element) {
  const ids = [element.id, ...(element.dataset.also ?? "").split(" ").filter(Boolean)];
  /** @type {Map<string, string>} */ const shown = new Map();
  let isFirst = true;
  repeat(async () => {
    if (isFirst) { isFirst = false; return; }
    try {
      const fresh = await page();
      const failed = fresh.getElementById("failed");
      for (const id of ids) replace(document.getElementById(id), fresh.getElementById(id), shown);
      showProblem(element, failed && failed.textContent?.trim());
    } catch (error) {
      showProblem(element, error);
    }
  }, Number(element.dataset.every ?? EVERY_S) * 1000);
}

/**
 * Replaces what an element shows, unless somebody is at work in it, or it shows the same already.
 * @param {HTMLElement | null} old @param {HTMLElement | null | undefined} fresh @param {Map<string, string>} shown
 */
function replace(old, fresh, shown) {
  if (!old || !fresh || old.contains(document.activeElement) || isSelected(old)) return;
  const text = fresh.textContent ?? "";
  if (shown.get(old.id) === text) return;
  shown.set(old.id, text);
  fill(old, fresh);
}

/** Shows in an element what another has, and starts it. @param {HTMLElement} old @param {HTMLElement} fresh */
export function fill(old, fresh) {
  old.replaceChildren(...fresh.childNodes);
  showTimes(old);
  startIslands(old);
}

/** @param {HTMLElement} element */
function isSelected(element) {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(element, true);
}

/**
 * Returns a page, by default this one, as the server shows it now; one that failed has the element `failed`. Throws an error whose
 * message is a sentence for the person.
 * @param {string} path @param {AbortSignal} [signal]
 */
export async function page(path = location.href, signal) {
  const response = await answered(path, "text/html", signal);
  if (response.redirected) throw new FeedError("Your session has ended. Log in again.");
  const found = new DOMParser().parseFromString(await response.text(), "text/html");
  if (!response.ok && !found.getElementById("failed")) throw new FeedError(`The console answers with status ${response.status}.`);
  return found;
}
