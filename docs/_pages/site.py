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
_LINK = re.compile(r"\]\((?:docs/|\.\./)?(?=[\w./-]*\.(?:md|yaml|png|json|ipynb)\b)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs with the files that it has found in docs/."""
    from mkdocs.structure.files import File

    above = Path(config.docs_dir).parent
    for name, shown in _ABOVE.items():
        files.append(File.generated(config, shown, content=(above / name).read_text()))
    for path in sorted(above.glob("conf/*")) + sorted(above.glob("notebooks/*.ipynb")):
        files.append(File.generated(config, f"{path.parent.name}/{path.name}", content=path.read_text()))
    return files


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """The text of each page lies beside it: llms.txt leads there."""
    text = Path(config.site_dir, page.file.src_uri)
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(page.markdown or "")
    return output


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links as they are when all pages are in one folder."""
    markdown = _LINK.sub("](", markdown)
    for name, shown in _ABOVE.items():
        markdown = markdown.replace(f"]({name}", f"]({shown}")
    return markdown
