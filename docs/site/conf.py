"""The settings of Sphinx for the site of the docs; `make site` builds it."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from seqgate import __version__

project = "Seqgate"
author = "The Seqgate maintainers"
version = release = __version__
language = "en"
extensions = ["myst_parser", "sphinx_copybutton"]
nitpicky = True
smartquotes = False  # options begin with two hyphens
highlight_language = "none"  # a block without a language is no Python

myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]  # pictures with a dark twin
myst_links_external_new_tab = False

html_theme = "furo"
html_title = f"Seqgate {version}"
html_static_path = ["static"]
html_css_files = ["seqgate.css"]
html_favicon = "../../gateway/console/static/icon.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#00695c", "color-brand-content": "#00695c"},
    "dark_css_variables": {"color-brand-primary": "#4fc7b0", "color-brand-content": "#4fc7b0"},
}
copybutton_exclude = ".linenos, .gp, .go"


def _mend_page(app: Sphinx, page: str, template: str, context: dict[str, Any], document: object) -> None:
    """Mend what makes the theme's pages hard to use with a keyboard or a screen reader.

    The captions of the navigation are headings without a level, and long lines of code and wide tables can't
    be scrolled without a mouse.
    """
    del app, page, template, document
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')
    if "body" in context:
        body = context["body"].replace("<pre>", '<pre tabindex="0">')
        context["body"] = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')


def setup(app: Sphinx) -> None:
    """Mend each page after the theme has prepared it."""
    app.connect("html-page-context", _mend_page, priority=900)
