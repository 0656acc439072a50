"""The bars behind the numbers that a recording printed, and numbers that stay whole."""

import re

import pytest

pytest.importorskip("sphinx", reason="needs Sphinx")

import finish
from proof import bars

WIDE = """\
NVIDIA H100
a cast of [448.0, 464.0]
microseconds, cold cache
                    forward  backward  saved MiB
copy                   80.0
F.dropout, compiled   120.0     100.0       64.0

forward  dim  length   opbook    eager  of the fastest
          64    1024      356        -             89%

backward dim  length   opbook    eager  of the fastest
          64    1024      230       96             93%
a product of matrices
"""
LONG = """\
microseconds
   shape  way     us
 64x4096  copy   4.0
 64x4096  eager  8.0
128x4096  copy  20.0
"""


def shares(html: str) -> list[tuple[float, str]]:
    found = re.findall(r'--share: ([\d.]+)%">(.*?)</span>', html)
    return [(float(share), number) for share, number in found]


def test_a_cell_belongs_to_the_column_above_it():
    (table,) = bars.printed(WIDE, ["forward", "backward"])
    assert table.title == "microseconds, cold cache"
    assert table.head == ["", "forward", "backward", "saved MiB"]
    assert table.rows == [
        ["copy", "80.0", "", ""],
        ["F.dropout, compiled", "120.0", "100.0", "64.0"],
    ]


def test_a_table_without_a_title_has_it_before_its_columns():
    first, second = bars.printed(WIDE, ["opbook", "eager"])
    assert (first.title, second.title) == ("forward", "backward")
    assert first.head == second.head
    assert first.head == ["dim", "length", "opbook", "eager", "of the fastest"]
    assert second.rows == [["64", "1024", "230", "96", "93%"]]


def test_a_text_without_these_columns_has_no_table():
    assert not [*bars.printed(WIDE, ["forward", "us"])]
    assert not [*bars.printed("", ["us"])]


def test_the_longest_bar_is_the_largest_number_of_its_group():
    (table,) = bars.printed(LONG, ["us"])
    drawn = bars.html(table, ["us"], "shape", "a GPU")
    assert shares(drawn) == [(50, "4.0"), (100, "8.0"), (100, "20.0")]
    drawn = bars.html(table, ["us"], "", "a GPU")
    assert shares(drawn) == [(20, "4.0"), (40, "8.0"), (100, "20.0")]
    assert "(a GPU)</caption>" in drawn


def test_a_row_can_be_a_group_and_what_is_no_number_gets_no_bar():
    tables = bars.printed(WIDE, ["opbook", "eager"])
    drawn = [shares(bars.html(t, ["opbook", "eager"], "row", "a GPU")) for t in tables]
    assert drawn == [[(100, "356")], [(100, "230"), (41.7, "96")]]


@pytest.mark.parametrize("number", ["1e-7", "1.6e-2", "1e-12"])
def test_a_number_with_a_hyphen_stays_on_one_line(number):
    kept = f'<span class="number">{number}</span>'
    assert finish.whole_numbers(f"<td>{number}; more</td>") == f"<td>{kept}; more</td>"
    assert finish.whole_numbers(f"<code>{number}</code>") == f"<code>{kept}</code>"


@pytest.mark.parametrize(
    "html",
    [
        '<a href="#at-1e-7">tolerance</a>',
        "<pre>eps = <span>1e-7</span>\n1e-6</pre>",
        "<p>the e-mail of pre-1e, version-1e-7, 3e7, 5-7</p>",
    ],
)
def test_what_is_no_number_in_the_text_stays_as_it_is(html):
    assert finish.whole_numbers(html) == html


@pytest.mark.parametrize(
    "head", ['<th scope="col"></th>', '<th class="head"><p></p></th>']
)
def test_a_header_cell_without_a_text_becomes_a_common_cell(head):
    context = {"body": f"<tr>{head}<th>us</th></tr>"}
    finish.finish(None, "page", "page.html", context, None)
    assert context["body"] == "<tr><td></td><th>us</th></tr>"
