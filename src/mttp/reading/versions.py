"""The spans of a recording in the names of another version of the convention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from mttp.codec.translating import Translator
from mttp.errors import ConfigureError
from mttp.model.spans import SpanRecord
from mttp.semconv import translation

__all__ = ["InVersion"]


class InVersion:
    """
    Spans with the names that their attributes have in one version of the convention.

    An attribute that the version lacks is kept, and is counted in `lacking`.
    Raises ConfigureError for a version that is not known.
    """

    def __init__(self, records: Iterable[SpanRecord], version: str) -> None:
        if version not in translation.VERSIONS:
            known = ", ".join(translation.VERSIONS)
            raise ConfigureError(f"version {version!r} of the convention is not known; give one of {known}")
        self._records = records
        self._missing = translation.lacking(version)
        self._translate, self._current = Translator(version), Translator()
        self.lacking = Counter[str]()
        """The number of spans with each attribute that the version lacks."""

    def __iter__(self) -> Iterator[SpanRecord]:
        for record in self._records:
            if self._missing:
                self.lacking.update(self._missing & self._current(record).attributes.keys())
            yield self._translate(record)
