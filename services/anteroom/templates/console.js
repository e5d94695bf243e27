// Keeps the part of the page that changes up to date. Whatever has the focus outside of it keeps it, and so does the scroll
// position. A selection inside of it stops the updates until it is gone.
"use strict";
(() => {
  const live = document.getElementById("live");
  const update = async () => {
    const selection = document.getSelection();
    const selects = selection && !selection.isCollapsed && live.contains(selection.anchorNode);
    if (!document.hidden && !selects) {
      try {
        const answer = await fetch(location.href, { headers: { "x-part": "live" } });
        if (answer.ok) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          const next = page.getElementById("live");
          const focused = live.contains(document.activeElement) && document.activeElement.getAttribute("href");
          if (next) {
            live.replaceChildren(...next.childNodes);
          }
          if (focused) {
            const same = [...live.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused);
            if (same) {
              same.focus({ preventScroll: true });
            }
          }
        }
      } catch {
        // The console is away: the page stays as it was.
      }
    }
    setTimeout(update, 2000);
  };
  setTimeout(update, 2000);
})();
