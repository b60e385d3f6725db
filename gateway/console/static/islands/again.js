// Opens a page by itself: asks for the page again and again, and loads it when it no longer says that nothing answers.
import { repeat } from "../feed.js";
import { page } from "./refresh.js";

const EVERY_MS = 3000;

export function start() {
  let isFirst = true;
  repeat(async () => {
    if (isFirst) { isFirst = false; return; }
    const fresh = await page().catch(() => null);
    if (fresh && !fresh.querySelector('#failed[data-island="again"]')) location.reload();
  }, EVERY_MS);
}
