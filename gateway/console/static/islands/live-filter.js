// A form that filters a list while somebody types: data-shows names the element that the answer replaces.
import { startIslands } from "../console.js";
import { showTimes } from "../times.js";

const AFTER_MS = 250;

/** @param {HTMLFormElement} form */
export function start(form) {
  const id = form.dataset.shows ?? "";
  let timer = 0;
  let asked = new AbortController();
  form.addEventListener("input", () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(show, AFTER_MS);
  });
  const show = async () => {
    asked.abort();
    asked = new AbortController();
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) query.set(name, String(value));
    const path = `${new URL(form.action).pathname}?${query}`;
    try {
      const response = await fetch(path, { signal: asked.signal, cache: "no-store", headers: { Accept: "text/html" } });
      const answer = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = answer.getElementById(id) ?? answer.getElementById("failed"); // such as half a regular expression
      const old = document.getElementById(id);
      if (!fresh || !old) { form.requestSubmit(); return; }
      old.replaceChildren(...fresh.childNodes);
      showTimes(old);
      startIslands(old);
      history.replaceState(null, "", path);
    } catch (error) {
      if (!(error instanceof DOMException)) form.requestSubmit();
    }
  };
}
