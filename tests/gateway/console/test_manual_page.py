"""The pages of docs/ in the console."""

from __future__ import annotations

import re

import pytest

from seqgate.gateway.console.pages.manual import page_html
from seqgate.gateway.manual import page_names, page_sections, page_text
from tests.support.console_client import ConsoleClient


def test_the_list_leads_to_every_page(console: ConsoleClient) -> None:
    listed = console.page("/manual")
    assert set(re.findall(r'href="/manual/([^"#]+)"', listed)) == set(page_names())
    assert '<h1 id="security">' in console.page("/manual/security")
    assert "the nearest name is security" in console.page("/manual/secrity")


@pytest.mark.parametrize("name", page_names())
def test_each_link_of_a_page_leads_to_a_section(name: str) -> None:
    html = page_html(page_text(name))
    for page, anchor in re.findall(r'href="(?:/manual/([\w-]+))?#([^"]+)"', html):
        assert anchor in {each.anchor for each in page_sections(page_text(page or name))}
    assert re.findall(r'href="(?!/manual/|https?://|#)[^"]*"', html) == []
    assert "<script" not in html


def test_markup_in_a_page_is_text() -> None:
    assert page_html("a <b>bold</b> word\n") == "<p>a &lt;b&gt;bold&lt;/b&gt; word</p>\n"
