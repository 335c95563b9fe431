# SPDX-License-Identifier: Apache-2.0
"""The base of all objects: registry, reading, writing and downgrading.

oslo.versionedobjects has one registry for the whole process, which nova fills, too.
Ours is `REGISTRY` below, so that both can be imported in one process in either order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from weakref import ref

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of
from oslo_versionedobjects.exception import InvalidTargetVersion

from .envelope import (
    CHANGES,
    DATA,
    NAME,
    NAMESPACE,
    VERSION,
    OpaqueObject,
    changed_names,
    check_envelope,
    version_tuple,
)
from .errors import MalformedObject, TooNewValue, UnsetField, UnsupportedObject
from .fields import class_of, declare
from .reading import Reader, reader
from .writing import Writer, writer

REGISTRY: dict[str, type[WireObject]] = {}

_Class = TypeVar("_Class", bound="type[WireObject]")


def register(cls: _Class, registry: dict[str, type[WireObject]] = REGISTRY) -> _Class:
    """Add a class to a registry and define properties for its fields."""
    cls.ADDED = getattr(cls.fields, "added", {})
    ovo.VersionedObjectRegistry.objectify(cls)
    cls._readers = {
        name: reader(field, _object_reader) for name, field in cls.fields.items()
    }
    cls._writers = {
        name: (f"_obj_{name}", writer(field)) for name, field in cls.fields.items()
    }
    for name in cls.fields:
        field = cls.__dict__[name]  # oslo's property, whose getter is slow
        setattr(cls, name, property(_getter(name), field.fset, field.fdel))
    registry[cls.obj_name()] = cls
    return cls


def _getter(name: str) -> Callable[[WireObject], Any]:
    key = f"_obj_{name}"

    def get(self: WireObject) -> Any:
        try:
            return self.__dict__[key]
        except KeyError:
            return self.obj_load_attr(name)

    return get


class WireObject(ovo.VersionedObject):
    """An object as nova sends it.

    Unknown fields of a newer minor version are kept in `_unknown` and written back.
    """

    OBJ_SERIAL_NAMESPACE = "nova_object"
    OBJ_PROJECT_NAMESPACE = "nova"

    # Functions that return the values that unset fields read as; other unset fields
    # read as their declared defaults.
    UNSET: ClassVar[Mapping[str, Callable[[], Any]]] = {}
    # The versions that added fields; set from the declaration of the fields.
    ADDED: ClassVar[Mapping[str, str]] = {}
    # Values that are newer than their field: {field: {value: version}}.
    ADDED_VALUES: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    _readers: ClassVar[dict[str, Reader]]
    _writers: ClassVar[dict[str, tuple[str, Writer | None]]]
    _unknown: Mapping[str, Any] = {}

    if TYPE_CHECKING:  # the fields

        def __getattr__(self, name: str) -> Any:
            """Read a field."""

        def __setattr__(self, name: str, value: object) -> None:
            """Set a field."""

    def __contains__(self, name: object) -> bool:
        # oslo.versionedobjects' method checks the field's definition, too; this method
        # is called a hundred times for each request.
        return f"_obj_{name}" in self.__dict__

    def set_values(self) -> dict[str, Any]:
        """Return the values of the fields that are set, by name."""
        values = self.__dict__
        keys = ((name, key) for name, (key, _) in self._writers.items())
        return {name: values[key] for name, key in keys if key in values}

    @classmethod
    def of_valid(cls, **values: object) -> Self:
        """Create an object of valid values, which are not checked.

        The constructor checks and sets each field by several calls: a decision creates
        six objects, which would take a tenth of the decision's time.
        """
        obj = cls.__new__(cls)
        obj.__dict__.update({f"_obj_{name}": value for name, value in values.items()})
        obj.__dict__.update(_changed_fields=set(values), _context=None)
        return obj

    @classmethod
    def obj_class_from_name(cls, objname: str, objver: str) -> type[WireObject]:
        """Return a class of our registry; raise if the major version differs."""
        registered = REGISTRY.get(objname)
        if registered is None:
            raise UnsupportedObject(objname)
        if version_tuple(objver)[0] != version_tuple(registered.VERSION)[0]:
            raise _wrong_major(registered, objver)
        return registered

    @classmethod
    def obj_from_primitive(
        cls, primitive: dict[str, Any], context: object = None
    ) -> Self:
        """Read an object from its wire form, or raise MalformedObject."""
        obj = read_object(primitive, None if cls is WireObject else cls, context)
        return obj  # type: ignore[return-value]  # read_object checked the class

    def obj_load_attr(self, attrname: str) -> Any:
        """Return the value that an unset field reads as; it stays unset on the wire.

        The value is cached, so that an item added to a set or a list stays.
        """
        lazy = self.__dict__.setdefault("_lazy", {})
        if attrname not in lazy:
            lazy[attrname] = self._default_of(attrname)
        return lazy[attrname]

    def _default_of(self, name: str) -> Any:
        make_default = self.UNSET.get(name)
        if make_default is not None:
            return make_default()
        default = self.fields[name].default
        if default is of.UnspecifiedDefault:
            raise UnsetField(self.obj_name(), name)
        return copy.deepcopy(default)

    def obj_to_primitive(
        self,
        target_version: str | None = None,
        version_manifest: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the wire form, in an older version if `target_version` is one."""
        version = target_version or self.VERSION
        is_older = version != self.VERSION
        if is_older and version_tuple(version) > version_tuple(self.VERSION):
            raise InvalidTargetVersion(version=version)
        data = self._fields_to_primitive()
        changed = self._changed_in(data)
        if is_older or version_manifest:
            self.obj_make_compatible_from_manifest(data, version, version_manifest)
        if not is_older:
            data.update(self._unknown)
        primitive = {
            NAME: self.obj_name(),
            NAMESPACE: self.OBJ_PROJECT_NAMESPACE,
            VERSION: version,
            DATA: data,
        }
        changes = sorted(name for name in changed if name in data)
        if changes:
            primitive[CHANGES] = changes
        return primitive

    def _fields_to_primitive(self) -> dict[str, Any]:
        values = self.__dict__
        data: dict[str, Any] = {}
        for name, (key, write) in self._writers.items():
            if key in values:
                value = values[key]
                if write is not None and value is not None:
                    value = write(value)
                data[name] = value
        return data

    def _changed_in(self, data: Mapping[str, Any]) -> set[str]:
        changed = set(self._changed_fields)
        for name, value in data.items():
            if type(value) is dict and value.get(CHANGES) and NAME in value:
                changed.add(name)
        return changed

    def obj_make_compatible(
        self, primitive: dict[str, Any], target_version: str
    ) -> None:
        """Remove from `primitive` the fields that `target_version` did not have."""
        manifest: dict[str, str] | None = getattr(self, "_obj_version_manifest", None)
        if manifest:
            self._downgrade_children(primitive, manifest)
        target = version_tuple(target_version)
        for field, values in self.ADDED_VALUES.items():
            added = values.get(primitive.get(field) or "")
            if added and target < version_tuple(added):
                self._reject_value(primitive, field, target_version)
        for field, added in self.ADDED.items():
            if target < version_tuple(added):
                primitive.pop(field, None)

    def _reject_value(
        self, primitive: dict[str, Any], field: str, version: str
    ) -> None:
        added = self.ADDED.get(field)
        if added is None or version_tuple(version) >= version_tuple(added):
            raise TooNewValue(self.obj_name(), field, primitive[field], version)

    def _downgrade_children(
        self, primitive: dict[str, Any], manifest: dict[str, str]
    ) -> None:
        for name in primitive.keys() & self.fields.keys():
            value = getattr(self, name)
            if isinstance(value, WireObject):
                primitive[name] = _downgraded(value, manifest)
            elif isinstance(value, list) and any(
                isinstance(item, WireObject) for item in value
            ):
                primitive[name] = [
                    _downgraded(item, manifest)
                    if isinstance(item, WireObject)
                    else item.obj_to_primitive()
                    for item in value
                ]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that is copied or pickled: all but weak references."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if not isinstance(value, ref)
        }

    def __copy__(self) -> Self:
        """Share all values, but not the set of changed fields."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(
            self.__getstate__(), _changed_fields=set(self._changed_fields)
        )
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy all attributes except the context, which is shared."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        values = {
            name: value
            for name, value in self.__getstate__().items()
            if name != "_context"
        }
        copied.__dict__.update(copy.deepcopy(values, memo), _context=self._context)
        return copied


def _downgraded(obj: WireObject, manifest: dict[str, str]) -> dict[str, Any]:
    target_version = manifest.get(obj.obj_name(), obj.VERSION)
    is_older = version_tuple(target_version) < version_tuple(obj.VERSION)
    return obj.obj_to_primitive(target_version if is_older else None, manifest)


def _wrong_major(cls: type[WireObject], version: str) -> MalformedObject:
    major = version_tuple(cls.VERSION)[0]
    return MalformedObject(f"version {major}.x of {cls.obj_name()}", version, VERSION)


def _class_of(primitive: Any) -> type[WireObject]:
    if isinstance(primitive, WireObject):
        return type(primitive)
    check_envelope(primitive)
    return WireObject.obj_class_from_name(primitive[NAME], primitive[VERSION])


def _read(primitive: Any, expected: type[WireObject] | None, context: object) -> Any:
    cls = _class_of(primitive)
    if expected is not None and not issubclass(cls, expected):
        raise MalformedObject(f"a {expected.obj_name()}", cls.obj_name(), NAME)
    if isinstance(primitive, WireObject):
        return primitive
    return _fill(cls, primitive, context)


def _fill(
    cls: type[WireObject], primitive: dict[str, Any], context: object
) -> WireObject:
    version = primitive[VERSION]
    our_version = cls.VERSION
    is_newer = version != our_version and version_tuple(version) > version_tuple(
        our_version
    )
    obj = cls.__new__(cls)
    values = obj.__dict__
    values["_changed_fields"] = changed_names(primitive)
    values["_context"] = context
    readers = cls._readers
    unknown = {}
    name = ""
    try:
        for name, value in primitive[DATA].items():
            if name in readers:
                values[f"_obj_{name}"] = readers[name](value, is_newer)
            else:
                unknown[name] = value
    except MalformedObject as error:
        error.prefix_path(name)
        raise
    if version != our_version:
        values["VERSION"] = version
    if unknown:
        values["_unknown"] = unknown
    return obj


def _object_reader(kind: of.Object) -> Reader:
    """Return the reader of a nested object; an unknown class may stay opaque."""
    class_name, takes_subclasses = class_of(kind)

    def read(value: Any, _newer: bool) -> Any:
        try:
            return _read(value, REGISTRY[class_name], None)
        except UnsupportedObject as error:
            if takes_subclasses and error.path == "":
                return OpaqueObject(copy.deepcopy(value))
            raise

    return read


def read_object(
    primitive: object, expected: type[WireObject] | None = None, context: object = None
) -> WireObject:
    """Read one object, of class `expected` or any of ours, or raise MalformedObject."""
    try:
        obj: WireObject = _read(primitive, expected, context)
        return obj
    except MalformedObject as error:
        name = primitive.get(NAME) if type(primitive) is dict else None
        if isinstance(name, str) and name in REGISTRY:
            error.prefix_path(name)
        elif expected is not None:
            error.prefix_path(expected.obj_name())
        raise


class Timestamped:
    """Mixin: when the object's row was created and last updated."""

    fields = declare(
        created_at=of.DateTimeField(nullable=True),
        updated_at=of.DateTimeField(nullable=True),
    )


class Persistent(Timestamped):
    """Mixin: the timestamps of a row with soft deletion."""

    fields = declare(
        **Timestamped.fields,
        deleted_at=of.DateTimeField(nullable=True),
        deleted=of.BooleanField(default=False),
    )


class EphemeralObject(WireObject):
    """An object without a database row: its defaults are set at construction."""

    def __init__(self, context: object = None, **kwargs: object) -> None:
        """Set the given fields, then the defaults of the other fields."""
        super().__init__(context, **kwargs)
        self.obj_set_defaults()


class ObjectList(ovo.ObjectListBase[Any], WireObject):
    """A list of objects of one class."""

    UNSET: ClassVar = {"objects": list}  # as in nova, whose constructor sets it

    def obj_make_compatible(
        self, primitive: dict[str, Any], target_version: str
    ) -> None:
        """Keep the versions of the items, unless a manifest has older ones."""
        WireObject.obj_make_compatible(self, primitive, target_version)

    def _changed_in(self, data: Mapping[str, Any]) -> set[str]:
        changed = super()._changed_in(data)
        if any(item.get(CHANGES) for item in data.get("objects") or ()):
            changed.add("objects")
        return changed
