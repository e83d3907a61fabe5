"""Make a Python function from each request: `bertprep.create(seq=512)` does the same as `bertprep create --seq 512`.

The function's signature and documentation come from the fields of the request, so `help` and notebooks show every keyword with
its type, default and help text, and type checkers see them too.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from bertprep.options import GROUPS, Field, fields_of
from bertprep.terminal import near

P = ParamSpec("P")
AnyRequest = TypeVar("AnyRequest")
Result = TypeVar("Result")
_WIDTH = 100


def function_of(
    request: Callable[P, AnyRequest], method: Callable[[AnyRequest], Result], name: str = ""
) -> Callable[P, Result]:
    """Return a function that builds a request from its keywords and calls `method`, whose name it has by default.

    Options that exist only in the shell are not among the keywords. A wrong call raises a `TypeError` that names the function.
    """
    name = name or method.__name__
    fields = {each.keyword: each for each in fields_of(request) if not each.shell}
    parameters = inspect.signature(request).parameters.values()
    signature = inspect.Signature(
        [each.replace(annotation=fields[each.name].annotation) for each in parameters if each.name in fields],
        return_annotation=inspect.signature(method).return_annotation,
    )

    def call(*arguments: P.args, **keywords: P.kwargs) -> Result:
        unknown = next((each for each in keywords if each not in fields), None)
        if unknown is not None:
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}{near(unknown, fields)}")
        try:
            signature.bind(*arguments, **keywords)
        except TypeError as error:  # Python's message, which does not name the function
            raise TypeError(f"{name}() {str(error).replace('too many', 'got too many')}") from None
        return method(request(*arguments, **keywords))

    call.__name__ = call.__qualname__ = name
    call.__module__ = method.__module__
    call.__doc__ = f"{inspect.cleandoc(method.__doc__ or '')}\n\n{_describe([*fields.values()])}"
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _describe(fields: Sequence[Field]) -> str:
    """Return the help of each keyword under the headings of --help, with the names of options replaced by keywords."""
    keywords = {each.flag: f"`{each.keyword}`" for each in fields}
    lines = []
    for group in GROUPS:
        of_group = [each for each in fields if each.group == group]
        if of_group:
            lines += ["", f"{group.capitalize()}:"]
        for each in of_group:
            text = re.sub(r"--[a-z][\w-]*", lambda found: keywords.get(found[0], found[0]), each.full_help)
            lines += textwrap.wrap(f"{each.keyword}: {text}", _WIDTH, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines).strip()
