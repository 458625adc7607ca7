/* Keyboard access to tables and code that scroll sideways, and a name of the version menu that has its visible text: the theme makes both without. */
const amend = () => {
  for (const block of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code"))
    block.scrollWidth > block.clientWidth ? block.setAttribute("tabindex", "0") : block.removeAttribute("tabindex")
  for (const version of document.querySelectorAll(".md-version__current"))
    version.ariaLabel = `${version.innerText.trim()}: select version`
}
new MutationObserver(amend).observe(document.body, { childList: true, subtree: true })
addEventListener("resize", amend)
amend()
