"""Settings of the documentation: Sphinx with MyST pages, the API reference from docstrings.

    sphinx-build -W --keep-going -b html docs build/docs
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import batchup_ng  # the checkout's own, or the installed one

project = "batchup_ng"
author = "batchup_ng contributors"
copyright = author  # Sphinx wants this name
version = release = batchup_ng.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "figures/*.md"]  # the figures are included by other pages
templates_path: list[str] = []

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # or the attributes of named tuples would stand there twice
autodoc_mock_imports = ["jax", "keras", "tensorflow", "torch"]  # which take longer to import than the rest to build
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
add_module_names = False
default_role = "code"  # docstrings write the names of arguments in single backquotes

html_theme = "furo"
pygments_dark_style = "github-dark"  # that of the theme underlines names of modules, as if they were links
html_extra_path = ["llms.txt"]  # in the root of the site; llms_txt.py writes it
html_title = f"batchup_ng {version}"
html_static_path = ["static"]
html_css_files = ["own.css"]
html_theme_options = {"navigation_with_keys": True}
html_show_copyright = False


def setup(app: Any) -> None:
    """Sphinx calls this once."""
    app.connect("autodoc-process-docstring", keep_the_sentence, priority=400)  # before napoleon, which has 500
    app.connect("autodoc-process-signature", with_defaults_that_parse)
    ModuleAnalyzer.get_module_source = staticmethod(source_of)


def source_of(name: str, of_others: Any = ModuleAnalyzer.get_module_source) -> Any:
    """Keep autodoc from importing the modules that it mocks, to look for the source of what it mocked."""
    if name.partition(".")[0] in autodoc_mock_imports:
        raise PycodeError(f"{name} is mocked")
    return of_others(name)


def keep_the_sentence(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep napoleon from taking what stands before a colon in the docstring of a property for its type."""
    if what == "property" and lines:
        lines[0] = lines[0].replace(": ", ", ", 1)


def with_defaults_that_parse(
    app: Any, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Write defaults that are no expressions as ``...``: one of them has Sphinx show the signature as it came."""
    return signature and re.sub(r"= <[^<>]*>", "= ...", signature), returned
