/* SPDX-License-Identifier: Apache-2.0 */
/* Makes enums of named choices. LIST(X) has a row X(ID, "name") per choice; the enum, the names and
 * the text for help are made from it. */
#ifndef SLUICE_POLICY_CHOICE_H
#define SLUICE_POLICY_CHOICE_H

#define CHOICE_ID(id, name)   id,
#define CHOICE_NAME(id, name) name,
#define CHOICE_BAR(id, name)  "|" name

/* The names of a list as one text: "a|b|c". */
#define CHOICE_NAMES(LIST) (&(LIST(CHOICE_BAR))[1])

#endif
