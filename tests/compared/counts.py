"""Count the lines of a program, and the names of each package that it uses.

A line counts if it is neither blank nor a comment. A name counts once, however often it is used:

- what the program takes from a module, with its path: `tf.data.Dataset.range` is one name;
- attributes of objects that such names made: methods, properties;
- options that are passed by name to any of these, also by `**options` of a dict that the program writes out.

Attributes of the parameters of functions do not count, since the program does not say whose they are. Names of the
standard library and of the module `model` do not count.
"""

from __future__ import annotations

import ast
import builtins
import collections
import sys
from collections.abc import Iterable
from typing import Any

OWN = "model"
"""The module that stands for the reader's network."""


def count_lines(code: str) -> int:
    """Return the number of lines that are neither blank nor a comment."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in code.splitlines())


def names_by_package(code: str) -> dict[str, set[str]]:
    """Return the names that a program uses, by the package that they are of."""
    tree = ast.parse(code)
    names = _Names()
    names.visit(tree)
    names.visit(tree)  # functions may use what is assigned below them
    return dict(names.found)


class _Names(ast.NodeVisitor):
    """Collects names, and the package that made the object in each variable."""

    def __init__(self) -> None:
        self.found: dict[str, set[str]] = collections.defaultdict(set)
        self.imported: dict[str, tuple[str, str]] = {}  # by its name here: the package, and the path in it
        self.owners: dict[str, str | None] = {}
        self.options: dict[str, list[str]] = {}  # the keys of dicts that are written out

    # -- whose an expression is ----------------------------------------------------------------------------------

    def owner(self, node: Any) -> str | None:
        """Return the package that made the value of an expression, or None."""
        if isinstance(node, ast.Name):
            return self.imported[node.id][0] if node.id in self.imported else self.owners.get(node.id)
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
            return self.owner(node.value)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id):
                return self.owner_of_any(node.args)
            return self.owner(node.func)
        if isinstance(node, ast.BinOp):
            return self.owner_of_any([node.left, node.right])
        if isinstance(node, (ast.Tuple, ast.List)):
            return self.owner_of_any(node.elts)
        return self.owner(node.elt) if isinstance(node, (ast.GeneratorExp, ast.ListComp)) else None

    def owner_of_any(self, nodes: Iterable[Any]) -> str | None:
        """Return the package of the first of these expressions that has one."""
        return next(filter(None, map(self.owner, nodes)), None)

    def bind(self, target: Any, value: Any) -> None:
        """Keep whose the variables in `target` are, which are assigned `value` or parts of it."""
        if isinstance(target, (ast.Tuple, ast.List)):
            paired = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            for place, part in enumerate(target.elts):
                self.bind(part, value.elts[place] if paired else value)
        elif isinstance(target, ast.Name):
            self.owners[target.id] = self.owner(value)
            if isinstance(value, ast.Dict):
                self.options[target.id] = [key.value for key in value.keys if isinstance(key, ast.Constant)]

    # -- what binds variables ------------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self._import(each.asname or each.name, each.name.partition(".")[0], "")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            self._import(each.asname or each.name, str(node.module).partition(".")[0], each.name)

    def _import(self, here: str, package: str, path: str) -> None:
        if package != OWN and package not in sys.stdlib_module_names:
            self.imported[here] = package, path

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.bind(target, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.bind(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self.bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_ListComp(self, node: Any) -> None:
        for each in [*node.generators, node.elt]:  # variables are bound before they are used
            self.visit(each)

    visit_GeneratorExp = visit_SetComp = visit_ListComp

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, item.context_expr)
        for each in node.body:
            self.visit(each)

    def visit_FunctionDef(self, node: Any) -> None:
        outside = dict(self.owners)
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self.owners.update(dict.fromkeys([each.arg for each in parameters]))
        self.generic_visit(node)
        self.owners = outside

    visit_Lambda = visit_FunctionDef

    # -- what is counted -----------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        package, path = self.imported.get(node.id, ("", ""))
        if path:
            self.found[package].add(path)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts, root = [node.attr], node.value
        while isinstance(root, ast.Attribute):
            parts.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name) and root.id in self.imported:
            package, path = self.imported[root.id]
            self.found[package].add(".".join(filter(None, [path, *reversed(parts)])))
            return
        if package := self.owner(root):
            self.found[package].update(parts)
        self.visit(root)

    def visit_Call(self, node: ast.Call) -> None:
        if package := self.owner(node.func):
            for keyword in node.keywords:
                if keyword.arg is not None:
                    self.found[package].add(keyword.arg)
                elif isinstance(keyword.value, ast.Name):
                    self.found[package].update(self.options.get(keyword.value.id, ()))
        self.generic_visit(node)
