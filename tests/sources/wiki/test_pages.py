"""Disambiguation pages, lists of names and sections of references are known by their names in many languages."""

import pytest

from bertprep.sources.wiki.pages import is_appendix, is_disambiguation, is_list_of_names, opens_disambiguation

TITLES = """
Merkur (Begriffsklärung)
Mercure (homonymie)
Меркурий (значения)
水星（曖昧さ回避）
水星（消歧义）
Mercury (disambiguation)
Mercurio (disambigua)
Mercurius (doorverwijspagina)
Merkury (ujednoznacznienie)
"""
MARKED = """
{{disambig}}
It is. {{ Place_name disambiguation }}
{{Begriffsklärung}}
{{Homonymie}}
{{desambiguación}}
{{Неоднозначность}}
{{人名の曖昧さ回避}}
{{地名消歧义}}
{{hndis|Smith, John}}
{{dp}}
{{ujednoznacznienie}}
__DISAMBIG__
"""


@pytest.mark.parametrize("title", TITLES.strip().splitlines())
def test_a_disambiguation_page_is_known_by_its_title(title: str) -> None:
    assert is_disambiguation(title, "")
    assert not is_disambiguation(f"{title[:4]} (planet)", "")


@pytest.mark.parametrize("wikitext", MARKED.strip().splitlines())
def test_a_disambiguation_page_is_known_by_its_template(wikitext: str) -> None:
    assert is_disambiguation("A", wikitext)


@pytest.mark.parametrize(
    "wikitext", ["{{otheruses}}", "{{Begriffsklärungshinweis}}", "{{Voir homonymes|A}}", "{{nota disambigua}}", "{{zie dp|A}}"]
)
def test_a_note_that_leads_to_one_is_no_disambiguation_page(wikitext: str) -> None:
    assert not is_disambiguation("A", wikitext)


def test_lists_of_names() -> None:
    assert is_list_of_names("Adams", "{{Surname}}")
    assert is_list_of_names("Aa River", "{{Set index article|river}}")
    assert is_list_of_names("Anna (name)", "")
    assert not is_list_of_names("Anna", "{{Infobox given name\n|a=b}}")


@pytest.mark.parametrize(
    ("paragraph", "opens"),
    [
        ("Mercury may refer to:", True),
        ("Merkur steht für:", True),
        ("Mercure peut désigner :", True),
        ("Меркурий может означать:", True),
        ("水星可以指：", True),
        ("The term may refer to a planet, and it is the one that this article is about, as all of its sections show.", False),
        ("Mercury is a planet.", False),
    ],
)
def test_first_words_of_a_disambiguation_page(paragraph: str, opens: bool) -> None:
    assert opens_disambiguation(paragraph) is opens


@pytest.mark.parametrize(
    ("heading", "is_one"),
    [
        ("Further reading", True), ("'''Works cited'''", True), ("Literatur", True), ("Bibliographie", True),
        ("Notes & references", True), ("Selected bibliography (English)", True), ("参考文献", True), ("Примечания", True),
        ("Life", False), ("Notes on his life", False), ("References to God", False),
    ],
)  # fmt: skip
def test_sections_after_the_article(heading: str, is_one: bool) -> None:
    assert is_appendix(heading) is is_one
