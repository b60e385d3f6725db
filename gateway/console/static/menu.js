// The navigation on narrow windows, which a button opens.
export function startMenu() {
  const button = document.getElementById("menu-button");
  const navigation = document.getElementById("navigation");
  button?.addEventListener("click", () => {
    const isOpen = navigation?.classList.toggle("open") ?? false;
    button.setAttribute("aria-expanded", String(isOpen));
  });
}
