"""The error for a property that cannot be followed."""

from __future__ import annotations

from spark_eos.errors import OptionError


def unsupported(key: str, what: str, hint: str) -> OptionError:
    return OptionError("EOS_OPTION_KAFKA_UNSUPPORTED", f"Option 'kafka.{key}' {what}", hint=hint, option=f"kafka.{key}")


def package_missing(key: str, what: str, package: str, extra: str) -> OptionError:
    """The error for a property that needs a package which is not installed in this Python."""
    return unsupported(
        key,
        f"{what}, which needs the package {package}; it is not installed here.",
        hint=f"Install the extra '{extra}' of spark-eos on the driver and on the executors.",
    )


def unreadable_certificates(error: OSError) -> OptionError:
    return OptionError(
        "EOS_OPTION_KAFKA_INVALID",
        f"The kafka.ssl.* certificates cannot be loaded: {error}.",
        hint="Check that the files exist, are in PEM format or PKCS12 stores, and can be read on this machine.",
    )
