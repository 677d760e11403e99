"""Render the Markdown of a verdict as HTML that contains no links, scripts or pictures from elsewhere."""

from collections.abc import Callable, Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup

Picture = Callable[[str, str], str]


def render_markdown(text: str, picture: Picture) -> Markup:
    """Render Markdown (CommonMark and tables) that cannot contain HTML, links or pictures from elsewhere.

    Arguments:
        text: the Markdown. Headings start at the second level, because the page has a title.
        picture: returns the HTML of a picture, given its address and description.
    """
    parser = MarkdownIt("commonmark", renderer_cls=_Renderer).enable("table")
    tokens = parser.parse(text)
    return Markup(parser.renderer.render(tokens, parser.options, {"picture": picture}).rstrip("\n"))


class _Renderer(RendererHTML):
    """markdown-it's own renderer, which escapes all text; it calls the method named after the type of a token."""

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        tokens[idx].tag = f"h{max(int(tokens[idx].tag[1]), 2)}"
        return self.renderToken(tokens, idx, options, env)

    heading_close = heading_open

    def paragraph_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        alone = [child.type for child in tokens[idx + 1].children or ()] == ["image"]
        tokens[idx].hidden = tokens[idx + 2].hidden = tokens[idx].hidden or alone  # a picture is a block of its own
        return self.renderToken(tokens, idx, options, env)

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="wide" role="region" tabindex="0" aria-label="table"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        tokens[idx].attrs = {"scope": "col", **_align(tokens[idx])}
        return self.renderToken(tokens, idx, options, env)

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        tokens[idx].attrs = _align(tokens[idx])
        return self.renderToken(tokens, idx, options, env)

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return ""  # the page stands alone, so it shows the text of a link and, at its end, the address

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        opened = next(token for token in reversed(tokens[:idx]) if token.type == "link_open")
        address = str(opened.attrs["href"])
        return f" ({escape(address)})" if "://" in address else ""

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        picture: Picture = env["picture"]
        return picture(str(tokens[idx].attrs["src"]), tokens[idx].content)

    def html_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "" if tokens[idx].content.startswith("<!--") else escape(tokens[idx].content)

    html_block = html_inline


def _align(token: Token) -> dict[str, str | int | float]:
    return {"class": "number"} if token.attrs.get("style") == "text-align:right" else {}
