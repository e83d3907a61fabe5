"""The former names of `bertprep.files.paths`."""

from bertprep.files import paths
from bertprep.files.paths import HEAD_BYTES as HEAD_BYTES
from bertprep.files.paths import ObjectPath as ObjectPath
from bertprep.files.paths import disk_folder as disk_folder
from bertprep.files.paths import is_object as is_object
from bertprep.files.paths import local_path as local_path
from bertprep.files.paths import open_at as open_at
from bertprep.files.paths import open_download as open_download
from bertprep.files.paths import open_head as open_head
from bertprep.files.paths import real_path as real_path
from bertprep.files.paths import remove_all as remove_all
from bertprep.files.paths import sizes_of as sizes_of

place = paths.as_path
as_path = paths.path_arg
local_place = paths.as_local_path
