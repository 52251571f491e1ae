# The Debian package: `cpack -G DEB` in a build tree. What it depends on, dpkg-shlibdeps says.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sluice)
set(CPACK_PACKAGE_VENDOR "sluice")
set(SLUICE_MAINTAINER "sluice developers <sluice@localhost>" CACHE STRING "whom the package names as its maintainer")
set(CPACK_PACKAGE_CONTACT "${SLUICE_MAINTAINER}")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "run Mixture-of-Experts models larger than memory")
set(CPACK_PACKAGE_DESCRIPTION
"Runs Mixture-of-Experts language models from GGUF files within a budget of
memory: experts live on storage, a bounded part of them in shared memory, and
small processes keep the right ones there. Text is the same as with all the
memory in the world. Serves OpenAI's HTTP API, a conversation on the terminal
and tools to measure, plan and simulate.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "bash (>= 5)")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "bash-completion")
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/package_files.cmake)
include(CPack)
