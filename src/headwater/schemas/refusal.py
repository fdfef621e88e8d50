"""What the registry refuses, in the words and numbers that its clients know."""


class SchemaRefused(Exception):
    """The first three digits of the code are the status of the answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return int(str(self.code)[:3])


def subject_not_found(subject: str) -> SchemaRefused:
    return SchemaRefused(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> SchemaRefused:
    return SchemaRefused(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> SchemaRefused:
    return SchemaRefused(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def subject_deleted(subject: str) -> SchemaRefused:
    return SchemaRefused(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_deleted(subject: str) -> SchemaRefused:
    return SchemaRefused(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_deleted(subject: str, version: int) -> SchemaRefused:
    return SchemaRefused(
        40406, f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    )


def version_not_deleted(subject: str, version: int) -> SchemaRefused:
    return SchemaRefused(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def no_level(subject: str) -> SchemaRefused:
    return SchemaRefused(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_mode(subject: str) -> SchemaRefused:
    return SchemaRefused(40409, f"Subject '{subject}' does not have subject-level mode configured")


def context_not_found(context: str) -> SchemaRefused:
    return SchemaRefused(40401, f"Context '{context}' not found.")


def context_not_empty(context: str) -> SchemaRefused:
    return SchemaRefused(42211, f"The specified context '{context}' is not empty.")


def incompatible(subject: str, reasons: str) -> SchemaRefused:
    return SchemaRefused(
        409,
        f"Schema being registered is incompatible with an earlier schema for subject '{subject}', details: {reasons}",
    )


def invalid_schema(reason: str) -> SchemaRefused:
    return SchemaRefused(42201, f"Invalid schema: {reason}")


def invalid_version(version: str) -> SchemaRefused:
    return SchemaRefused(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def not_permitted(reason: str) -> SchemaRefused:
    return SchemaRefused(42205, reason)


def referenced(subject: str, version: int) -> SchemaRefused:
    return SchemaRefused(42206, f"One or more references exist to the schema {{subject={subject},version={version}}}.")
