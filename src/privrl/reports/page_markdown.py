"""The Markdown of our own verdicts as HTML: headings, paragraphs, lists, tables, code and pictures.

Everything is escaped, so a verdict can show any text and change nothing but its own shape.
"""

from collections.abc import Callable
from html import escape

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from privrl.reports.page import code, table

Picture = Callable[[str, str], str]


def markdown(text: str, picture: Picture) -> str:
    """The text as HTML; headings start at the second level, for the page has a title of its own.

    Arguments:
        text: Markdown (CommonMark, and tables).
        picture: given an address and a description, the HTML of that picture (or nothing).
    """
    parsed = MarkdownIt("commonmark").enable("table").parse(text)
    return "\n".join(filter(None, (_html(node, picture) for node in SyntaxTreeNode(parsed).children)))


def _html(node: SyntaxTreeNode, picture: Picture) -> str:
    inner = "".join(_html(child, picture) for child in node.children) if node.type != "table" else ""
    match node.type:
        case "heading":
            level = max(int(node.tag[1]), 2)
            return f"<h{level}>{inner}</h{level}>"
        case "paragraph" if not node.hidden and [child.type for child in node.children[0].children] != ["image"]:
            return f"<p>{inner}</p>"
        case "bullet_list" | "ordered_list":
            return f"<ul>{inner}</ul>"
        case "list_item" | "strong" | "em":
            return f"<{node.tag}>{inner}</{node.tag}>"
        case "link":  # the page stands alone, so a link is shown as its words
            address = str(node.attrs["href"])
            return f"{inner} ({escape(address)})" if "://" in address else inner
        case "image":
            return picture(str(node.attrs["src"]), node.content)
        case "code_inline":
            return f"<code>{escape(node.content)}</code>"
        case "fence" | "code_block":
            return code(node.content.rstrip("\n"))
        case "table":
            return _table(node)
        case "softbreak" | "hardbreak":
            return " "
        case "html_block" | "html_inline":
            return "" if node.content.startswith("<!--") else escape(node.content)
        case "text":
            return escape(node.content)
    return inner


def _table(node: SyntaxTreeNode) -> str:
    (head, *rest) = [row.children for part in node.children for row in part.children]
    numbers = [i for i, cell in enumerate(head) if cell.attrs.get("style") == "text-align:right"]
    return table([_plain(cell) for cell in head], [[_plain(cell) for cell in row] for row in rest], numbers=numbers)


def _plain(node: SyntaxTreeNode) -> str:
    """Bold, emphasis and links as the words alone; tables know only code."""
    if node.type == "code_inline":
        return f"`{node.content}`"
    return "".join(_plain(child) for child in node.children) or (node.content if node.type == "text" else "")
