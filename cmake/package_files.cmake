# SPDX-License-Identifier: Apache-2.0
# Before the package is built: moves files to the directories that Debian uses and compresses manual pages
# and the changelog without a time stamp, so that the same build gives the same package.
set(staged ${CPACK_TEMPORARY_DIRECTORY}/usr)
file(GLOB_RECURSE pages ${staged}/share/man/*.1)
file(RENAME ${staged}/share/zsh/site-functions ${staged}/share/zsh/vendor-completions)
set(doc ${staged}/share/doc/sluice)
file(RENAME ${doc}/CHANGELOG.md ${doc}/changelog)
foreach(file ${pages} ${doc}/changelog)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
