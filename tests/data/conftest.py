"""Writing small tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Writes columns to a Parquet file and returns its path."""

    def write(columns: dict[str, Any], name: str = "stays.parquet", **options: Any) -> Path:
        path = tmp_path / name
        pq.write_table(pa.table(columns), path, **options)
        return path

    return write
