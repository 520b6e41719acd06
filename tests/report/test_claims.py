"""Claims as CSV and as Markdown."""

from pathlib import Path

from fedlatest.report import Claim, write_claims


def test_claims_as_csv(tmp_path: Path) -> None:
    claims = [
        Claim("g", "c, with a comma", "1", "2", True),
        Claim("g", "d", "3", "", False),
        Claim("g", "e", "", "", None),
    ]
    text = write_claims(claims, tmp_path / "claims.csv").read_text()
    assert text.splitlines() == [
        "group,claim,measured,published,verdict",
        'g,"c, with a comma",1,2,holds',
        "g,d,3,,does not hold",
        "g,e,,,not judged",
    ]


def test_claims_as_markdown(tmp_path: Path) -> None:
    claims = [Claim("First", "a | b", "1", "2", True), Claim("Second", "d", "3", "", False)]
    text = write_claims(claims, tmp_path / "claims.md").read_text()
    assert text.splitlines() == [
        "### First",
        "",
        "| claim | measured | published | verdict |",
        "|---|---|---|---|",
        r"| a \| b | 1 | 2 | holds |",
        "",
        "### Second",
        "",
        "| claim | measured | published | verdict |",
        "|---|---|---|---|",
        "| d | 3 |  | **does not hold** |",
    ]
