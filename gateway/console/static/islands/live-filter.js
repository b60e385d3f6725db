// A form that filters a list while somebody types: data-shows names the element that the answer replaces. Without an answer the list
// stays, a sentence says why, and the question is asked again: a new page would take the focus out of the filter.
import { FeedError } from "../feed.js";
import { showProblem } from "../feed-problem.js";
import { fill, page } from "./refresh.js";

const AFTER_MS = 250;
const AGAIN_MS = 3000;

/** @param {HTMLFormElement} form */
export function start(form) {
  const id = form.dataset.shows ?? "";
  let timer = 0;
  let asked = new AbortController();
  const showAfter = (/** @type {number} */ ms) => {
    window.clearTimeout(timer);
    timer = window.setTimeout(show, ms);
  };
  form.addEventListener("input", () => showAfter(AFTER_MS));
  const show = async () => {
    asked.abort();
    asked = new AbortController();
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) query.set(name, String(value));
    const path = `${new URL(form.action).pathname}?${query}`;
    try {
      replace(id, await page(path, asked.signal));
      history.replaceState(null, "", path);
      showProblem(form, null);
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return;
      showProblem(form, error);
      showAfter(AGAIN_MS);
    }
  };
}

/** Shows the list of an answer, or what the answer says in its place. @param {string} id @param {Document} answer */
function replace(id, answer) {
  const fresh = answer.getElementById(id) ?? answer.getElementById("failed"); // such as half a regular expression
  const old = document.getElementById(id);
  if (!fresh || !old) throw new FeedError(answer.querySelector("main .notice, main .empty-title")?.textContent ?? "The list is gone.");
  fill(old, fresh);
}
