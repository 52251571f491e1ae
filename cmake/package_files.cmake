# SPDX-License-Identifier: Apache-2.0
# Before the package is built: moves files to the directories that Debian uses, writes the changelog in its form,
# strips programs and the CUDA module as dh_strip does (cpack strips targets of its own only), and compresses manual pages and the changelog without a
# time stamp, so that the same build gives the same package.
set(staged ${CPACK_TEMPORARY_DIRECTORY}/usr)
file(GLOB_RECURSE pages ${staged}/share/man/*.1)
file(RENAME ${staged}/share/zsh/site-functions ${staged}/share/zsh/vendor-completions)
set(doc ${staged}/share/doc/sluice)
file(TIMESTAMP ${doc}/CHANGELOG.md changed "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${doc}/changelog "sluice (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * This version: CHANGELOG.md in /usr/share/doc/sluice.

 -- ${CPACK_PACKAGE_CONTACT}  ${changed}
")
file(GLOB binaries ${staged}/libexec/sluice/*)
execute_process(COMMAND strip --strip-unneeded --remove-section=.comment --remove-section=.note ${binaries}
                COMMAND_ERROR_IS_FATAL ANY)
include(${CMAKE_CURRENT_LIST_DIR}/package_servers.cmake)
foreach(file ${pages} ${doc}/changelog)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
