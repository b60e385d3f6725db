// Makes a password, shows it, and copies it. The password never leaves the browser but in the form.
const LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const LENGTH = 24;

/** @param {HTMLElement} element */
export function start(element) {
  const field = /** @type {HTMLInputElement} */ (element.querySelector("input[name=password]"));
  const show = /** @type {HTMLButtonElement} */ (element.querySelector("[data-show]"));
  const make = /** @type {HTMLButtonElement} */ (element.querySelector("[data-make]"));
  const copy = /** @type {HTMLButtonElement} */ (element.querySelector("[data-copy]"));
  const said = /** @type {HTMLElement} */ (element.querySelector("[data-said]"));

  const reveal = (/** @type {boolean} */ shown) => {
    field.type = shown ? "text" : "password";
    show.textContent = shown ? "Hide" : "Show";
  };
  show.addEventListener("click", () => reveal(field.type === "password"));
  make.addEventListener("click", () => {
    field.value = made();
    reveal(true);
    said.textContent = "The password is made here. Keep it now: it can't be shown again.";
  });
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(field.value);
      said.textContent = "The password is copied.";
    } catch {
      reveal(true);
      field.select();
      said.textContent = "The browser refuses to copy. Press Ctrl-C: the password is selected.";
    }
  });
  for (const button of [show, make, copy]) button.hidden = false;
}

/** Returns letters and digits that look different from each other, each equally likely. */
function made() {
  const chosen = [];
  while (chosen.length < LENGTH) {
    const [byte] = crypto.getRandomValues(new Uint8Array(1));
    if (byte < LETTERS.length * Math.floor(256 / LETTERS.length)) chosen.push(LETTERS[byte % LETTERS.length]);
  }
  return chosen.join("");
}
