# SPDX-License-Identifier: Apache-2.0
# The Debian package: `cpack -G DEB` in a build tree. dpkg-shlibdeps finds its dependencies.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sluice)
set(CPACK_PACKAGE_VENDOR "sluice")
set(SLUICE_MAINTAINER "The sluice authors <authors@sluice.invalid>" CACHE STRING "maintainer of the Debian package")
set(CPACK_PACKAGE_CONTACT "${SLUICE_MAINTAINER}")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "run Mixture-of-Experts models larger than memory")
set(CPACK_PACKAGE_DESCRIPTION
"Runs Mixture-of-Experts language models from GGUF files within a budget of
memory: experts live on storage, a bounded part of them is cached in shared
memory. With the default preset, greedy output is the same as with the whole
model in memory. Serves the OpenAI HTTP API; includes a conversation on the
terminal and tools to measure, plan and simulate.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "bash (>= 5), systemd | systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "bash-completion")
foreach(file postinst prerm postrm conffiles)
  list(APPEND CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/debian/${file})
endforeach()
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/package_files.cmake)
include(CPack)
