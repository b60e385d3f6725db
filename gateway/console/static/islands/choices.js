// A form whose fields depend on what the person chooses: <select data-choice> and, in the same form, elements with
// data-for="value other-value".

/** @param {HTMLElement} form */
export function start(form) {
  const choices = /** @type {NodeListOf<HTMLSelectElement>} */ (form.querySelectorAll("select[data-choice]"));
  const show = () => {
    const chosen = new Set([...choices].map((choice) => `${choice.name}=${choice.value}`));
    for (const part of form.querySelectorAll("[data-for]")) {
      const needed = (part.getAttribute("data-for") ?? "").split(" ").some((value) => chosen.has(value));
      /** @type {HTMLElement} */ (part).hidden = !needed;
      const fields = part instanceof HTMLFieldSetElement ? [part] : part.querySelectorAll("input, select");
      for (const field of fields) /** @type {HTMLInputElement} */ (field).disabled = !needed;
    }
  };
  for (const choice of choices) choice.addEventListener("change", show);
  show();
}
