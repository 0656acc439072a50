"""Every page as a reader's browser sees it."""


def test_the_front_page_opens(page, site):
    page.goto(f"{site}/index.html")
    assert page.title()
