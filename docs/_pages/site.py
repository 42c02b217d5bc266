"""What the website needs beside docs/: the pages of the folder above, and the files that pages link to there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

#: Names on the website, by those in the folder above. Some disks do not tell SECURITY.md from docs/security.md.
_ABOVE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md": "CODE_OF_CONDUCT.md",
    "SECURITY.md": "security-policy.md",
}
#: Rooms of `spark_eos.pipelines` with a README.md, which is a page of the website, too.
_ROOMS = ("copy", "files", "mirror", "registry", "tables")
_LINK = re.compile(r"\]\((?:(?:\.\./)*docs/|\.\./)?(?=[\w./-]*\.(?:md|yaml|png|json|ipynb)\b)")
_ROOM = re.compile(rf"\]\((?:spark_eos/pipelines/)?({'|'.join(_ROOMS)})/README\.md")
_CODE = re.compile(r"\[([^\]]+)\]\((?:\.\./)*\w[\w/]*\.py\)")
_ITEM = re.compile(r"^(- |\d\. )")
_PICTURE = re.compile(r"^!\[.*\]\((.+)\)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs with the files that it has found in docs/."""
    from mkdocs.structure.files import File

    above = Path(config.docs_dir).parent
    for name, shown in _ABOVE.items():
        files.append(File.generated(config, shown, content=(above / name).read_text()))
    for room in _ROOMS:
        text = (above / "spark_eos" / "pipelines" / room / "README.md").read_text()
        files.append(File.generated(config, f"room-{room}.md", content=text))
    files.append(File.generated(config, "site.css", content=Path(__file__).with_name("site.css").read_text()))
    for path in sorted(above.glob("conf/*")) + sorted(above.glob("notebooks/*.ipynb")):
        files.append(File.generated(config, f"{path.parent.name}/{path.name}", content=path.read_text()))
    return files


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """The text of each page lies beside it: llms.txt leads there."""
    text = Path(config.site_dir, page.file.src_uri)
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(page.markdown or "")
    return output


def in_lists(markdown: str) -> str:
    """Lists as Python-Markdown asks for them, where others are content with less: what belongs to an item is indented
    by four characters, and what is behind a paragraph of an item is behind an empty line."""
    lines: list[str] = []
    width, paragraphs, code = 0, False, False
    for line in markdown.split("\n"):
        code ^= line.startswith("```")
        if code:
            width = 0
        elif item := _ITEM.match(line):
            if paragraphs and lines[-1]:
                lines.append("")
            width, paragraphs = len(item[0]), False
        elif line and not line.startswith(" "):
            width = 0
        elif width and line.startswith(" " * width):
            paragraphs = paragraphs or not lines[-1]
            line = " " * (4 - width) + line
        lines.append(line)
    return "\n".join(lines)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links as they are when all pages are in one folder, without those to code, which is not on the website; pictures
    lead to themselves, as phones show them small."""
    markdown = _ROOM.sub(r"](room-\1.md", _LINK.sub("](", _CODE.sub(r"\1", markdown)))
    markdown = in_lists(_PICTURE.sub(r"[\g<0>](\1)", markdown))
    for name, shown in _ABOVE.items():
        markdown = markdown.replace(f"]({name}", f"]({shown}")
    return markdown
