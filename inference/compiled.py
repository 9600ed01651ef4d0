"""Compiled code kept on disk, so that another process need not compile it again."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from nousppl.errors import FileError


def keep_compiled(folder: str | PathLike[str]) -> Path:
    """Keep what is compiled from now on in a folder, and take from there what earlier processes compiled.

    Compiling is most of the time of a first fit. Code is found again by the program, the sizes it was compiled for
    and the versions of jax and of the processor; what does not fit is compiled anew. This switches jax's persistent
    compilation cache on for the whole process, all jax programs in it included; nothing in the package does so unasked.

    Args:
        folder: made where it is not there.

    Returns:
        The folder.

    Raises:
        FileError: the folder cannot be made or written to.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    path = Path(folder).expanduser().absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / ".writable").touch()
        (path / ".writable").unlink()
    except OSError as error:
        raise FileError(f"compiled code cannot be kept in {path}: {error.strerror or error}") from error
    jax.config.update("jax_compilation_cache_dir", str(path))
    # By default only what took a second is kept; a fit compiles some dozens of small functions besides.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # A process that has compiled before has decided already that there is no folder.
    compilation_cache.reset_cache()
    return path
