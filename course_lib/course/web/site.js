// Without this file every page still reads well. It does two things.

// On a narrow screen the list of notebooks starts folded, so that the text comes first.
const list = document.querySelector(".side details");
if (list && matchMedia("(max-width: 64rem)").matches) list.open = false;

// What is wider than the screen scrolls by itself, and so must be reachable by keyboard; only that, or
// a page would have hundreds of stops.
function reachable() {
  for (const box of document.querySelectorAll("pre, .wide")) {
    if (box.scrollWidth > box.clientWidth + 1) {
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", box.closest(".code") ? "Code, scrolls sideways" : "Output, scrolls sideways");
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    }
  }
}
reachable();
addEventListener("resize", reachable);
for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", reachable);
