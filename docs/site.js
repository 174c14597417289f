// Names and stops of the keyboard that the theme leaves out of what it makes in the browser.
function name() {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((nav, place) => {
    nav.setAttribute("aria-label", `Code ${place + 1}`);
  });
  const known = new Map();
  for (const nav of document.querySelectorAll(".md-nav[aria-label]")) {
    const label = nav.ariaLabel.replace(/, \d+$/, "");
    const place = (known.get(label) ?? 0) + 1;
    known.set(label, place);
    if (place > 1) nav.ariaLabel = `${label}, ${place}`;
  }
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) {
    wide.tabIndex = 0;
  }
  for (const hidden of document.querySelectorAll(".md-option[aria-hidden]")) hidden.tabIndex = -1;
}

new MutationObserver(name).observe(document.body, { childList: true, subtree: true });
name();
