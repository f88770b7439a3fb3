"""Detection of secrets by name, and their replacement before recording."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from mttp.errors import ConfigureError
from mttp.model.reprs import bounded_repr

__all__ = ["REDACTED", "USUAL", "VARIABLE", "Secrets", "may_be_secret", "without_secrets"]

REDACTED = "[redacted]"
"""The replacement of a secret."""
VARIABLE = "MTTP_SECRET_KEYS"
"""The environment variable with additional names, separated by commas; `false` turns redaction off."""

_REASON = "redacted as a secret"
_STRONG = (
    "(?:pg)?passw(?:or)?ds?",
    "passphrases?",
    "passcodes?",
    "pwd",
    "secrets?",
    "credentials?",
    "creds?",
    "authorization",
    "bearer",
    "(?:set_)?cookies?",
    "jwt",
    "conn(?:ection)?_?str(?:ing)?",
    "webhooks?",
    "(?:api|access|auth|private|secret|session|signing|encryption|account|service|ssh|master|dd_app|consumer|"
    "deploy|license|storage|subscription|functions|hmac|rsa|gpg|wandb|openai|anthropic|azure|aws)_?keys?",
    "(?:api|access|auth|refresh|bearer|session|hub|hf)_?tokens?",
)
"""Words that mark a name as secret at any position."""
_VOCABULARY = (
    "pad",
    "padding",
    "eos",
    "bos",
    "unk",
    "sep",
    "cls",
    "mask",
    "stop",
    "end",
    "start",
    "image",
    "think",
    "action",
    "newline",
    "special",
    "per",
)
_LAST = "".join(f"(?<!_{word}_)" for word in _VOCABULARY) + "token|o?auth"
"""Words that mark a name as secret at its end; special tokens, and what is per token, are not secret."""
_PASSES = (
    "all",
    "back",
    "backward",
    "band",
    "by",
    "did",
    "each",
    "final",
    "first",
    "forward",
    "full",
    "high",
    "is",
    "last",
    "low",
    "multi",
    "n",
    "num",
    "one",
    "per",
    "render",
    "second",
    "single",
    "test",
    "third",
    "two",
)
_PASS = "".join(f"(?<!_{word}_)" for word in _PASSES) + "pass|pw"
"""Words that mark a name as secret at its very end; passes over data and of tests are not secret."""
_NAMES_A_VARIABLE = ("_var", "_variable")
"""Ends of names whose value is the name of a variable: `api_key_var`."""
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_A_WORD = re.compile(r"[^a-z0-9]+")
_SPECIAL = re.compile(r"<.*>|\[.*\]", re.DOTALL)
"""A special token of a vocabulary, or a placeholder."""
_CONSTANT = re.compile(r"true|false|none|null|[-+]?[0-9.]+(?:e[-+]?[0-9]+)?|<.*>|\[.*", re.IGNORECASE)
"""A value in a text that is not secret."""
_USER = re.compile(
    r"(?<![\w+.-])(?P<scheme>[A-Za-z][\w+.-]*)://"
    r"(?P<user>[^/\s'\"?#]+|[^/\s'\"?#:@\[]{0,99}:(?!\d*[/?#])[^\s'\"@]{1,299})@"
    r"|(?<![\w/:@.+-])(?!(?:mailto|sip|acct|xmpp):)[A-Za-z][\w.+-]{0,99}:[^\s:@/'\"]{1,299}"
    r"@(?=[A-Za-z\[]|\d+\.\d+\.\d+\.)(?!sha\d)"
)
"""User and password of an address with or without a scheme; after one, a password may contain a slash."""
_ADDRESS_OPTION = re.compile(r"(?<=[?&#])(?P<name>[\w.%-]+)=(?P<value>(?!\[redacted)[^\s&#'\"<>]+)")
_GRANT = re.compile(r"(?:x-(?:amz|goog)-)?sig(?:nature)?|key|code|sas", re.IGNORECASE)
"""Options of an address that grant access to it, besides those whose names are of secrets anywhere."""
_KNOWN_FORMS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}\b|gh[pousr]_[A-Za-z0-9]{20}|github_pat_\w{20}|gl[a-z]{2,5}-[\w-]{20}"
    r"|(?:hf|npm|r8|rpa|gsk|pcsk|api_org)_[A-Za-z0-9]{20}|(?:[sr]k_(?:live|test)|dckr_[a-z]{3}|wandb_v1)_[\w-]{16}"
    r"|sk-[\w-]{0,30}?[A-Za-z0-9]{20}|(?:pypi|nvapi|xai)-\w{16}|xox[abeprs]-[\w-]{10}|AIza[\w-]{30}"
    r"|(?:ya29|hvs)\.[\w-]{20})[\w-]*"
    r"|\beyJ[\w-]{10,999}\.eyJ[\w.-]*"
    r"|(?<=\bhooks\.slack\.com/services/)[\w/]+",
    re.DOTALL,
)
"""Private keys, and tokens of providers and registries that are known by how they begin."""
_NAME = (
    rf"(?P<name>(?:(?:api|access|auth|private|secret|signing|license|{'|'.join(_VOCABULARY)})"
    r"[ ](?=keys?\b|token))?\w[\w.-]*)"
)
"""A name, also of two words."""
_MARK = r"\\*[\"']"
_QUOTED = (
    r"[bfruBFRU]{0,2}(?:\"\"\".*?\"\"\"|'{3}.*?'{3}"
    r"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\\+\"[^\"\\]*\\+\")"
)
_WORD = rf"(?:[\w.]{{1,60}}\(\s*)?{_QUOTED}|(?:(?:Bearer|Basic|Token)\s+)?[^\s,;&)}}\]'\"]+"
_ENDED = rf"(?:{_WORD})(?=[ \t]*(?:[,;)}}\]|<\\\"'#]|\r?$))"
"""A value that ends where its line, list or quotation does: a text goes on."""
_REST = re.compile(r"[^\r\n,'\"]+")
_FLAGS = re.DOTALL | re.MULTILINE
_IN_TEXT = (
    (
        ":",
        re.compile(
            r"\b(?P<name>(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,60}(?:key|token))\s*:\s*",
            re.IGNORECASE,
        ),
        _REST,
    ),
    (
        "=",
        re.compile(
            rf"(?<![\w.-])-*{_NAME}(?:{_MARK})?\]?"
            r"(?:\s*:\s*(?:\w+\[)?(?:str|bytes|SecretStr)\b\]?(?:[ ]*\|[ ]*None)?)?\s*[:!+?]?={1,3}>?\s*"
        ),
        re.compile(_WORD, _FLAGS),
    ),
    (":", re.compile(rf"(?P<quote>(?<!\\){_MARK}){_NAME}(?P=quote)\s*:\s*"), re.compile(_WORD, _FLAGS)),
    (
        ":",
        re.compile(
            rf"(?:^[ \t]*(?:[-*][ \t]+)?|[({{\[,;|\"'][ \t]*|(?<![\w./:-])"
            rf"(?=[\w-]{{0,60}}[_-]|pass[wpc]|pwd|api|access|private|secret)){_NAME}[ \t]*:(?![/:])[ \t]*",
            re.IGNORECASE | re.MULTILINE,
        ),
        re.compile(rf"[|>][-+\d]*[ \t]*\r?\n(?:[ \t]+[^\n]*(?:\n|\Z))+|{_ENDED}", _FLAGS),
    ),
    (
        ",",
        re.compile(rf"[(\[{{]\s*(?P<quote>(?<!\\){_MARK}){_NAME}(?P=quote)\s*,\s*"),
        re.compile(rf"{_QUOTED}(?=\s*[)\]}}])", _FLAGS),
    ),
    (
        "-",
        re.compile(rf"(?<![\w-])--?{_NAME}(?:\s+|{_MARK}\s*,\s*(?={_MARK}))(?!{_MARK}-|-)"),
        re.compile(_WORD, _FLAGS),
    ),
    (
        "-",
        re.compile(rf"(?<![\w-])(?:-u|--(?:proxy-)?user)(?:\s+|=|{_MARK}\s*,\s*)(?:{_MARK})?[^\s:'\"]+:"),
        re.compile(r"[^\s'\"\\]+"),
    ),
    (" ", re.compile(r"\b(?:ENV|setenv|setx)\s+(?P<name>\w+)\s+"), re.compile(_WORD, _FLAGS)),
    ("</", re.compile(r"<(?P<name>[\w.:-]+)(?:\s[^<>]{0,99})?>\s*"), re.compile(r"[^<]+(?=</)")),
)
"""
Headers, assignments, members of JSON, lines of YAML, pairs, command options, users, and elements of XML.

Each has a text to test first, what is before a value, and the value; without a name it is always secret.
"""
_OPENING = re.compile(r"\\*['\"]?")
_HINTS = (
    "pass",
    "pw",
    "secret",
    "cred",
    "auth",
    "bearer",
    "cookie",
    "jwt",
    "conn",
    "webhook",
    "key",
    "token",
    "://",
    "@",
    "?",
    "-u",
    "user",
)
"""Every text with a secret contains one of these, or a known form."""
_OPTION = re.compile(r"h[a-z]*d[a-z]*r|auth|token|pass|secret|cred|api|=[^&]*=", re.IGNORECASE)
"""Query options of a URL that may hold credentials, including misspelt ones."""
_PLACE = re.compile(r"([^?#]*)([?#]?)(.*)", re.DOTALL)
_MAX_CACHED = 4096
_MAX_NAMED = 100


class Secrets:
    """
    Replaces values whose names look like those of secrets.

    Names are compared word by word, in lower case: `API_KEY` and `apiKey` are equal.
    Numbers and booleans are not secrets.
    """

    def __init__(self, further: Iterable[str] = (), *, is_on: bool = True) -> None:
        """Add words that mark a name as secret to the default ones."""
        self.is_on = is_on
        self.further = tuple(further)
        strong = "|".join([*_STRONG, *(re.escape(_words(word)) for word in self.further)])
        self._names = re.compile(
            f"(?:^|_)(?:{strong})(?:_|$)|(?:^|_)(?:{_LAST})(?:_?[0-9]+)?$|(?:^|_)(?:{_PASS})$"
        )
        self._headers = _headers_named(self.further)
        self._hints = (*_HINTS, *(_words(word).partition("_")[0] for word in self.further))
        self._known: dict[str, bool] = {}

    @classmethod
    def stated(cls, given: Sequence[str] | bool | None) -> Secrets:
        """Return the setting of an argument, else of the variable; raises ConfigureError for other types."""
        source = "secret_keys"
        if given is None:
            source, variable = VARIABLE, os.environ.get(VARIABLE, "").strip()
            listed = [word.strip() for word in variable.split(",") if word.strip()]
            given = {"true": True, "false": False}.get(variable.lower(), listed)
        if isinstance(given, bool):
            return cls(is_on=given)
        words = given if isinstance(given, (list, tuple, set, frozenset)) else [None]
        if not all(isinstance(word, str) and _words(word) for word in words):
            raise ConfigureError(f"{source}={bounded_repr(given):.80} is not a list of names, True or False")
        return cls(given)

    def __str__(self) -> str:
        """Return the setting in the variable's syntax."""
        return ",".join(self.further) if self.is_on else "false"

    def names(self, key: str) -> bool:
        """Return whether a name is that of a secret."""
        is_secret = self._known.get(key)
        if is_secret is None:
            if len(self._known) >= _MAX_CACHED:
                self._known.clear()
            words = _words(key)
            is_secret = not words.endswith(_NAMES_A_VARIABLE) and bool(self._names.search(f"_{words}"))
            self._known[key] = is_secret
        return is_secret

    def hide(self, key: str, value: Any, omissions: list[str]) -> Any:
        """Return an attribute's plain value without secrets; each replacement is added to `omissions`."""
        if not self.is_on or isinstance(value, (bool, int, float)):
            return value
        paths: list[str] = []
        hidden = self._hidden(key, value, key, paths)
        omissions += [f"{path}: {_REASON}" for path in list(dict.fromkeys(paths))[:_MAX_NAMED]]
        return hidden

    def text(self, text: str) -> str:
        """Return a text for a message without secrets."""
        return str(self.hide("", text, []))

    def document(self, key: str, document: str, omissions: list[str]) -> str:
        """Return a JSON text without secrets; each replacement is added to `omissions`."""
        if not self.is_on or not self._may_hold(document):
            return document
        hidden_paths: list[str] = []
        hidden = self.hide(key, json.loads(document), hidden_paths)
        omissions += hidden_paths
        return json.dumps(hidden, ensure_ascii=False, separators=(",", ":")) if hidden_paths else document

    def mapping(self, given: Mapping[str, Any], omissions: list[str], *, prefix: str = "") -> dict[str, Any]:
        """Return attributes without secrets; each replacement is added to `omissions`."""
        return {key: self.hide(f"{prefix}{key}", value, omissions) for key, value in given.items()}

    def _hidden(self, key: str, value: Any, path: str, paths: list[str]) -> Any:
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if self.names(key):
            return _blank(value, path, paths)
        if isinstance(value, str):
            return self._without(value, path, paths)
        if isinstance(value, dict):
            named = _named_by(value)
            return {
                name: self._hidden(
                    named if name == "value" else f"{key}.{name}" if name in ("key", "keys") else name,
                    item,
                    f"{path}.{name}",
                    paths,
                )
                for name, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return type(value)(self._listed(value, path, paths))
        return value

    def _listed(self, values: Sequence[Any], path: str, paths: list[str]) -> list[Any]:
        """Return the items of a list without secrets, including values after options and in pairs."""
        items = []
        for place, value in enumerate(values):
            before, where = values[place - 1] if place else None, f"{path}.{place}"
            is_option = isinstance(before, str) and before.startswith("-") and "=" not in before
            name = before if isinstance(before, str) and (is_option or place + 1 == len(values) == 2) else ""
            if is_option and isinstance(value, str) and value.startswith("-"):
                name = ""
            if is_option and name and isinstance(value, str) and not self.names(name):  # as in `-u me:X`
                value = self._without(f"{name} {value}", where, paths).removeprefix(f"{name} ")
            items.append(self._hidden(name, value, where, paths))
        return items

    def _may_hold(self, text: str) -> bool:
        """Return whether a text may contain the name of a secret, or a URL."""
        lower = text.lower()
        return any(hint in lower for hint in self._hints) or bool(_KNOWN_FORMS.search(text))

    def _without(self, text: str, path: str, paths: list[str]) -> str:
        """Return a text without values assigned to names of secrets, and without credentials in URLs."""
        if not self._may_hold(text):
            return text
        cleaned = _USER.sub(_without_user, _KNOWN_FORMS.sub(REDACTED, text))
        cleaned = _ADDRESS_OPTION.sub(self._without_grant, cleaned)
        for sign, before, value in (*_IN_TEXT, *self._headers):
            if sign in text:
                cleaned = self._without_assigned(cleaned, before, value)
        if cleaned != text:
            paths.append(path)
        return cleaned

    def _without_grant(self, match: re.Match[str]) -> str:
        """Return an option of an address without its value if that is secret, or an address with a secret."""
        name, value = unquote(match["name"]), unquote(match["value"])
        is_secret = self.names(name) or bool(_GRANT.fullmatch(name))
        if is_secret or (value != match["value"] and self._without(value, "", []) != value):
            return f"{match['name']}={REDACTED}"
        return match[0]

    def _without_assigned(self, text: str, before: re.Pattern[str], values: re.Pattern[str]) -> str:
        """Return a text without the values that follow names of secrets."""
        pieces, end = [], 0
        for match in before.finditer(text):
            name = match.groupdict().get("name")
            if match.start() < end or not (name is None or self.names(name)):
                continue
            value = values.match(text, match.end())
            if value is None or _CONSTANT.fullmatch(value[0].strip("'\"\\")):
                continue
            opening = cast("re.Match[str]", _OPENING.match(value[0]))[0]
            pieces += [text[end : match.end()], opening, REDACTED, opening]
            end = value.end()
        return "".join([*pieces, text[end:]])


def _headers_named(further: Sequence[str]) -> list[tuple[str, re.Pattern[str], re.Pattern[str]]]:
    """Return the pattern of headers in a text whose names contain one of the further names."""
    if not further:
        return []
    words = "|".join(re.escape(_words(word)).replace("_", "[-_]") for word in further)
    name = rf"(?<![\w-])(?:[\w-]{{0,60}}[-_])?(?:{words})(?:[-_][\w-]{{0,60}})?"
    return [(":", re.compile(rf"(?P<name>{name})\s*:\s*", re.IGNORECASE), _REST)]


def _words(name: str) -> str:
    """Return the words of a name in lower case, joined by underscores."""
    return _NOT_A_WORD.sub("_", _WORD_BEGINS.sub("_", name).lower()).strip("_")


def _named_by(value: Mapping[str, Any]) -> str:
    """Return the name of what is in `value`, as in `{"name": "API_KEY", "value": ...}`."""
    named = value.get("name", value.get("key"))
    return named if isinstance(named, str) else "value"


def _blank(value: Any, path: str, paths: list[str]) -> Any:
    """Return a value with all its text replaced."""
    if isinstance(value, dict):
        return {name: _blank(item, f"{path}.{name}", paths) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_blank(item, path, paths) for item in value)
    if not isinstance(value, (str, bytes)) or not value:
        return value
    if isinstance(value, str) and _SPECIAL.fullmatch(value):
        return value
    paths.append(path)
    return REDACTED


def _without_user(match: re.Match[str]) -> str:
    """Return an address without user and password; a user alone is kept unless the scheme is HTTP."""
    scheme, user = match["scheme"], match["user"]
    if scheme is None:
        return f"{REDACTED}@"
    if ":" not in unquote(user) and not scheme.lower().startswith("http"):
        return match[0]
    return f"{scheme}://{REDACTED}@"


def without_secrets(address: str) -> str:
    """Return a URL for error messages: without credentials, and without options that may hold them."""
    place, sign, options = cast("re.Match[str]", _PLACE.fullmatch(address)).groups()
    scheme, separator, rest = place.partition("://") if "://" in place else ("", "", place)
    user, at, host = rest.rpartition("@")
    if at and not scheme.endswith("file") and (scheme or ":" in unquote(user)):
        place = f"{scheme}{separator}{REDACTED}@{host}"
    if _OPTION.search(unquote(options)):
        return place
    return place + USUAL.text(f"{sign}{options}")


def may_be_secret(name: str, value: object) -> bool:
    """Return whether an option may hold a secret, by its name or because its value contains options."""
    return bool(_OPTION.search(name)) or (isinstance(value, str) and ("=" in value or "@" in value))


USUAL = Secrets()
"""The default names of secrets."""
