"""Renders the templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gateway.console.page import Page, Section, Visit, address
from gateway.console.web.formats import FILTERS

HOME: Final = Path(__file__).resolve().parents[1]
TEMPLATES: Final = HOME / "templates"
STATIC: Final = HOME / "static"


class Renderer:
    """Renders pages with the navigation around them."""

    def __init__(self, pages: Iterable[Page]) -> None:
        """Load the templates; all values are escaped."""
        self._sections = [
            (section, [page for page in pages if page.section is section]) for section in Section
        ]
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(FILTERS)
        self._environment.globals["address"] = address

    def page(
        self, template: str, values: Mapping[str, Any], visit: Visit, place: str, notice: str | None
    ) -> str:
        """Return a page as HTML. `place` is the path of the request, which decides what the navigation marks."""
        return self._environment.get_template(template).render(
            **values,
            visit=visit,
            user=visit.user,
            csrf=visit.console.tokens.token(visit.session_id),
            sections=[(section, pages) for section, pages in self._sections if pages],
            place=place,
            notice=notice,
            has_metrics=visit.has_metrics,
        )
